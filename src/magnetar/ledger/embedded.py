"""Ledgers in the segment store of the same process.

The metadata store knows which ledgers exist, and where the closed ones end; the segment store holds their
entries. A writer lives as long as its process, so an OPEN ledger without a writer here was left by an earlier
process: opening it recovers its end from the segment store and closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import CorruptDataError, StorageError
from magnetar.base.ids import LedgerId
from magnetar.bookie.appender import NOBODY
from magnetar.bookie.index import LedgerIndex
from magnetar.bookie.reader import DeletedLedgerError
from magnetar.bookie.segment_store import SegmentStore
from magnetar.ledger.api import (
    Copies,
    LedgerClosedError,
    LedgerEnd,
    LedgerFencedError,
    LedgerWriteError,
    NoSuchEntryError,
    NoSuchLedgerError,
    WriterListener,
)
from magnetar.ledger.guard import LedgerGuard
from magnetar.ledger.ids import RANGE_SIZE, IdRange, encode_reserved
from magnetar.ledger.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from magnetar.ledger.listing import existing_ledgers, first_unreserved
from magnetar.ledger.paths import ID_GENERATOR, deletion_path, ledger_path
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    Delete,
    MetadataStore,
    NotFoundError,
    Put,
)
from magnetar.runtime.tasks import SingleFlight

_log = logging.getLogger("magnetar.ledger")

DEFAULT_BOOKIE_ID: Final = "embedded"
LOSS_KEY: Final = "magnetar/loss"
"""Key in a ledger's custom metadata: what damage may have taken after its last entry, in words."""


class EmbeddedReader:
    """Reads a closed ledger."""

    def __init__(self, store: SegmentStore, index: LedgerIndex, end: LedgerEnd, loss: str = "") -> None:
        self.loss: Final = loss
        """What damage may have taken after the last entry, in words; empty: nothing."""
        self._store = store
        self._index = index
        self._end = end

    @property
    def ledger_id(self) -> LedgerId:
        return self._index.ledger_id

    @property
    def last_entry(self) -> int:
        return self._end.last_entry

    @property
    def length_bytes(self) -> int:
        return self._end.length_bytes

    def read_now(self, first: int, last: int, bytes_max: int) -> list[EntryRun] | None:
        last = self._bound(first, last)
        return self._store.reader.read_now(self._index, first, last, bytes_max)

    async def read(self, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        last = self._bound(first, last)
        try:
            return await self._store.reader.read(self._index, first, last, bytes_max)
        except DeletedLedgerError as error:
            raise NoSuchLedgerError(self.ledger_id) from error

    def _bound(self, first: int, last: int) -> int:
        if self._index.deleted:
            raise NoSuchLedgerError(self.ledger_id)
        if first > self.last_entry and self.loss:
            raise CorruptDataError(
                "ledger", 0, f"entry {first} may have been lost: {self.loss}", self.ledger_id
            )
        if not 0 <= first <= self.last_entry:
            raise NoSuchEntryError(self.ledger_id, first)
        return min(max(first, last), self.last_entry)


class EmbeddedWriter(EmbeddedReader):
    """Writes an open ledger, and reads its durable entries."""

    def __init__(
        self,
        ledgers: EmbeddedLedgers,
        store: SegmentStore,
        ledger_id: LedgerId,
        listener: WriterListener,
        metadata: LedgerMetadata,
    ) -> None:
        self._listener: WriterListener = listener
        self.durable = listener.durable
        """Called by the store: the mark moved."""
        self._ledgers = ledgers
        self._metadata = metadata
        self._appender = store.appender(ledger_id, self)
        self._closing = False
        self._fenced = False
        self._closed: LedgerEnd | None = None
        super().__init__(store, self._appender.index, LedgerEnd(-1, 0))

    @property
    def last_entry(self) -> int:
        return self._appender.last_durable

    @property
    def length_bytes(self) -> int:
        return self._appender.durable_bytes

    @property
    def last_pushed(self) -> int:
        return self._appender.last_pushed

    @property
    def pending_bytes(self) -> int:
        return self._appender.pending_bytes

    def append(
        self, entries: list[bytes], counts: list[int] | None, base_index: int, broker_time_ms: int
    ) -> int:
        if self._fenced:
            raise LedgerFencedError(f"ledger {self.ledger_id} is fenced")
        if self._closing:
            raise LedgerClosedError(f"ledger {self.ledger_id} is closed")
        try:
            return self._appender.append(entries, counts, base_index, broker_time_ms)
        except StorageError as error:
            raise self._write_error(error) from error

    def failed(self, error: StorageError) -> None:
        """Called by the store: nothing more becomes durable."""
        if not self._fenced:
            failure = self._write_error(error)
            failure.__cause__ = error
            self._listener.failed(failure)

    async def close(self) -> LedgerEnd:
        if self._closed is not None:
            return self._closed
        self._closing = True
        return await self._ledgers.single_flight.run(("close", self.ledger_id), self._close)

    async def _close(self) -> LedgerEnd:
        await self._appender.settle()
        if self._fenced:
            raise LedgerFencedError(f"ledger {self.ledger_id} is fenced")
        if self._appender.error is not None:
            raise self._write_error(self._appender.error) from self._appender.error
        end = LedgerEnd(self._appender.last_durable, self._appender.durable_bytes)
        await self._ledgers.seal(self, self._metadata.closed(end))
        self._closed = end
        return end

    async def fence(self) -> None:
        """Refuses appends from now on; returns when nothing is pending. The listener is told last."""
        if self._fenced:
            return
        self._fenced = True
        await self._appender.settle()
        if self._appender.error is None and self._closed is None:
            self._listener.failed(LedgerFencedError(f"ledger {self.ledger_id} is fenced"))

    def release(self) -> None:
        """Ends appending and the store's notices."""
        self._store.release(self._appender)
        self._appender.release()
        # The listener refers to this object.
        self._listener, self.durable = NOBODY, NOBODY.durable

    def _write_error(self, cause: StorageError) -> LedgerWriteError:
        # With the cause in words: publishers see this text.
        return LedgerWriteError(f"entries of ledger {self.ledger_id} could not be made durable: {cause}")


class EmbeddedLedgers:
    """Creates, opens and deletes ledgers in one segment store."""

    def __init__(
        self,
        store: SegmentStore,
        metadata: MetadataStore,
        clock: Clock,
        *,
        bookie_id: str = DEFAULT_BOOKIE_ID,
        creation_token: Callable[[], int] = lambda: secrets.randbits(63),
        guard: LedgerGuard | None = None,
    ) -> None:
        """`guard` keeps store and metadata together when they outlive the process."""
        self.single_flight = SingleFlight[LedgerEnd]()
        self._opening = SingleFlight[tuple[LedgerEnd, str]]()
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._bookie_id = bookie_id
        self._creation_token = creation_token
        self._guard = guard
        self._ids = IdRange()
        self._writers: dict[LedgerId, EmbeddedWriter] = {}
        # Two reservations at a time would assign ids out of order.
        self._reserving = asyncio.Lock()

    @property
    def store(self) -> SegmentStore:
        """The segment store of the entries."""
        return self._store

    def has_room(self) -> bool:
        """See `Ledgers.has_room`."""
        return self._store.failure is None and self._store.supply.set_aside()

    async def create(
        self,
        listener: WriterListener,
        custom_metadata: Mapping[str, bytes],
        copies: Copies | None = None,
    ) -> EmbeddedWriter:
        """A new open ledger; see `Ledgers.create`. Raises LedgerWriteError when the store has failed."""
        if self._store.failure is not None:
            raise LedgerWriteError("the segment store has failed") from self._store.failure
        metadata = LedgerMetadata(
            state=LedgerState.OPEN,
            end=None,
            ensembles=((0, (self._bookie_id,)),),
            created_ms=self._clock.now_ms(),
            creation_token=self._creation_token(),
            custom=dict(custom_metadata),
        )
        ledger_id = await self._put_new(encode_ledger_metadata(metadata))
        try:
            writer = EmbeddedWriter(self, self._store, ledger_id, listener, metadata)
        except StorageError as error:
            raise LedgerWriteError("the segment store has failed") from error
        self._writers[ledger_id] = writer
        return writer

    async def _put_new(self, value: bytes) -> LedgerId:
        """Stores a new ledger's metadata and returns its id."""
        while True:
            ledger_id = self._ids.take()
            try:
                if ledger_id is not None:
                    await self._metadata.put(ledger_path(ledger_id), value, expected_version=MUST_NOT_EXIST)
                    return ledger_id
            except BadVersionError:
                # Another process that draws ids differently took this one.
                continue
            if (ledger_id := await self._reserve_and_put(value)) is not None:
                return ledger_id

    async def _reserve_and_put(self, value: bytes) -> LedgerId | None:
        """Reserves a range and stores the ledger with its first id in one transaction; None: the caller must
        try again."""
        async with self._reserving:
            if (ledger_id := self._ids.take()) is None:
                stored = await self._metadata.get(ID_GENERATOR)
                known_end = None if self._guard is None else self._guard.ids_end
                start = await first_unreserved(self._metadata, stored, known_end)
                if self._guard is not None:
                    await self._guard.ids_given(start + RANGE_SIZE)
                version = MUST_NOT_EXIST if stored is None else stored.stat.version
                reservation = Put(ID_GENERATOR, encode_reserved(start + RANGE_SIZE), version)
                try:
                    await self._metadata.transact(
                        [reservation, Put(ledger_path(start), value, MUST_NOT_EXIST)]
                    )
                except BadVersionError as error:
                    if error.path != ID_GENERATOR:
                        await self._metadata.transact([reservation])
                        self._ids.reserved(start)
                        self._ids.take()
                    return None
                self._ids.reserved(start)
                return self._ids.take()
        try:
            await self._metadata.put(ledger_path(ledger_id), value, expected_version=MUST_NOT_EXIST)
        except BadVersionError:
            return None
        return ledger_id

    async def open(self, ledger_id: LedgerId, *, to_replace: bool = False) -> EmbeddedReader:
        """A reader; see `Ledgers.open`. Raises NoSuchLedgerError.

        A ledger that was never closed and whose last entries damage may have taken is closed after the last
        known one; its reader reports that (`loss`), for ever. An undamaged ledger that is to be replaced
        stays open: if the process ends before the replacement, its end is found again, and a crash costs one
        write less for each of a thousand cursors.
        """
        # Under the lock, as other callers open it too: a later caller must read the new metadata.
        index = await self._store.reader.index_of(ledger_id)
        end, loss = await self._opening.run(
            ("replace" if to_replace else "open", ledger_id), lambda: self._closed_end(ledger_id, to_replace)
        )
        if index.deleted:
            raise NoSuchLedgerError(ledger_id)
        return EmbeddedReader(self._store, index, end, loss)

    async def _closed_end(self, ledger_id: LedgerId, to_replace: bool) -> tuple[LedgerEnd, str]:
        """The end of the ledger, which is closed if it was open, and what may have been lost after it."""
        while True:
            value = await self._metadata.get(ledger_path(ledger_id))
            if value is None:
                raise NoSuchLedgerError(ledger_id)
            metadata = decode_ledger_metadata(value.data, ledger_path(ledger_id))
            if metadata.end is not None:
                return metadata.end, metadata.custom.get(LOSS_KEY, b"").decode()
            if (writer := self._writers.get(ledger_id)) is not None:
                await writer.fence()
                writer.release()
                self._writers.pop(ledger_id, None)
            end, loss = await self._recover_end(ledger_id)
            if to_replace and not loss:
                return end, loss
            closed = metadata.closed(end)
            if loss:
                closed = replace(closed, custom={**closed.custom, LOSS_KEY: loss.encode()})
            try:
                await self._metadata.put(
                    ledger_path(ledger_id),
                    encode_ledger_metadata(closed),
                    expected_version=value.stat.version,
                )
            except BadVersionError:  # another caller closed or fenced it: read again
                continue
            return end, loss

    async def _recover_end(self, ledger_id: LedgerId) -> tuple[LedgerEnd, str]:
        index = await self._store.reader.index_of(ledger_id)
        segments = self._store.segments
        end = LedgerEnd(max(index.last_entry, segments.last_lost(ledger_id)), index.data_bytes)
        if (damage := segments.uncertain_end(index)) is None:
            return end, ""
        _log.error("ledger %d is closed behind entry %d: %s", ledger_id, end.last_entry, damage)
        return end, str(damage)

    async def delete(self, ledger_id: LedgerId) -> None:
        """Deletes the ledger; see `Ledgers.delete`. Raises StorageError, MetadataError."""
        if (writer := self._writers.pop(ledger_id, None)) is not None:
            await writer.fence()
            writer.release()
        # The metadata first: a crash in between leaves entries without a ledger, never a ledger without
        # entries. The deletion is recorded with it: entries that are unnamed without such a record are kept.
        noted = self._guard is not None and self._store.segments.holds(ledger_id)
        note = [Put(deletion_path(ledger_id), b"")] if noted else []
        # A crash in between, or another call, deleted the metadata; entries may be left.
        with contextlib.suppress(NotFoundError):
            await self._metadata.transact([Delete(ledger_path(ledger_id)), *note])
        await self._store.delete(ledger_id)
        if noted and self._guard is not None:
            await self._guard.deletion_done(ledger_id)

    async def tagged(self) -> AsyncIterator[tuple[LedgerId, Mapping[str, bytes]]]:
        """Every ledger with its custom metadata. Raises MetadataError, LedgerMetadataError."""
        async for ledger_id, metadata in existing_ledgers(self._metadata):
            yield ledger_id, metadata.custom

    async def seal(self, writer: EmbeddedWriter, metadata: LedgerMetadata) -> None:
        """Closes the writer's ledger in the metadata store. Raises LedgerFencedError, NoSuchLedgerError."""
        ledger_id = writer.ledger_id
        path = ledger_path(ledger_id)
        try:
            await self._metadata.put(path, encode_ledger_metadata(metadata), expected_version=0)
        except BadVersionError as error:
            if error.actual is None or error.actual < 0:
                raise NoSuchLedgerError(ledger_id) from error
            raise LedgerFencedError(f"ledger {ledger_id} was closed by another owner") from error
        writer.release()
        self._writers.pop(ledger_id, None)

"""The managed log's ledgers, implemented by a ledger client."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from weakref import WeakValueDictionary

from magnetar.base.clock import Clock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import CorruptDataError, LedgerError, LostEntriesError, LostRange
from magnetar.base.ids import LedgerId
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
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerHandle, LedgerOptions, LedgerWriteHandle
from magnetar.ledger.client.placement import NotEnoughBookiesError
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.remote.stored_entries import is_bare, runs, stored
from magnetar.observability.metrics import Exposition
from magnetar.runtime.tasks import Rounds, SingleFlight, TaskGroup

_log = logging.getLogger("magnetar.ledger.remote")


class TooFewBookiesError(LedgerError):
    """A ledger needs more bookies than are available. A later attempt may succeed."""

    retriable = True

    def __init__(self, needed: int, usable: int) -> None:
        super().__init__(
            f"a ledger needs {needed} bookies, {usable} take entries: start more, or set smaller ensembles"
        )
        self.needed = needed
        self.usable = usable


class _Fate:
    """State of one ledger that all its readers share."""

    __slots__ = ("__weakref__", "deleted")

    def __init__(self) -> None:
        self.deleted = False


class RemoteReader:
    """Reads a ledger over the network."""

    def __init__(self, handle: LedgerHandle, fate: _Fate) -> None:
        self._handle: LedgerHandle = handle
        self._fate = fate

    @property
    def ledger_id(self) -> LedgerId:
        return self._handle.ledger_id

    @property
    def last_entry(self) -> int:
        return self._handle.last_entry

    @property
    def length_bytes(self) -> int:
        return self._handle.length_bytes

    def read_now(self, first: int, last: int, bytes_max: int) -> list[EntryRun] | None:
        """Always returns None to wait for the network, unless the result is empty."""
        self._check(first)
        return None

    async def read(self, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        """See `LedgerReader.read`; also raises LedgerUnreadableError when too few bookies answer."""
        self._check(first)
        try:
            entries = await self._handle.read(first, last, bytes_max)
        except (CorruptDataError, NoSuchEntryError) as error:
            if self._fate.deleted:
                raise NoSuchLedgerError(self.ledger_id) from error
            # It was acknowledged, every bookie of its ensemble has answered, and none has a good copy.
            raise LostEntriesError(
                f"all copies of entry {first}",
                0,
                str(error),
                LostRange(self.ledger_id, first, first),
                remedy=f"`magnetar storage accept-loss {self.ledger_id} {first}` gives it up",
            ) from error
        if self._fate.deleted:
            raise NoSuchLedgerError(self.ledger_id)
        return runs(self.ledger_id, first, [entry.payload for entry in entries])

    def _check(self, first: int) -> None:
        if self._fate.deleted:
            raise NoSuchLedgerError(self.ledger_id)
        if not 0 <= first <= self.last_entry:
            raise NoSuchEntryError(self.ledger_id, first)


class _Relay:
    """Relays the client's notices to the log's listener; none after the failure."""

    def __init__(self, listener: WriterListener) -> None:
        self._listener = listener
        self.error: LedgerError | None = None

    def durable(self, last_entry: int) -> None:
        """Called by the client."""
        if self.error is None:
            self._listener.durable(last_entry)

    def failed(self, error: LedgerError) -> None:
        """Called by the client, or by the writer that is given up."""
        if self.error is None:
            self.error = _in_words(error)
            self._listener.failed(self.error)


def _in_words(error: LedgerError) -> LedgerError:
    if not isinstance(error, LedgerWriteError):
        return error
    # Publishers see this text.
    told = LedgerWriteError(f"too few bookies keep entries: {error}; bring bookies back, or start others")
    told.__cause__ = error
    return told


class RemoteWriter(RemoteReader):
    """Writes an open ledger, and reads its durable entries."""

    def __init__(
        self, ledgers: RemoteLedgers, handle: LedgerWriteHandle, relay: _Relay, fate: _Fate, *, bare: bool
    ) -> None:
        """`bare`: without broker metadata, see `stored_entries.is_bare`."""
        super().__init__(handle, fate)
        self._bare = bare
        self._ledgers = ledgers
        self._writing = handle
        self._relay = relay
        self._fenced: LedgerFencedError | None = None
        self._closing = False

    @property
    def last_pushed(self) -> int:
        return self._writing.last_pushed

    @property
    def pending_bytes(self) -> int:
        return self._writing.pending_bytes

    def append(
        self, entries: list[bytes], counts: list[int] | None, base_index: int, broker_time_ms: int
    ) -> int:
        if (error := self._fenced or self._relay.error) is not None:
            raise error
        if self._closing:
            raise LedgerClosedError(f"ledger {self.ledger_id} is closed")
        return self._writing.append(
            entries if self._bare else stored(entries, counts, base_index, broker_time_ms)
        )

    async def close(self) -> LedgerEnd:
        if (known := self._fenced or self._relay.error) is not None:
            raise known
        self._closing = True
        try:
            end = await self._writing.close()
        except LedgerError as error:
            raise self._relay.error or _in_words(error) from error
        self._ledgers.left(self)
        return end

    async def give_up(self) -> None:
        """Refuses appends from now on, and closes the ledger once the appended entries are durable, if
        possible.

        The listener is told last, unless it closed the ledger itself.
        """
        if self._closing or self._relay.error is not None:
            return
        self._fenced = LedgerFencedError(f"ledger {self.ledger_id} was opened or deleted under its writer")
        try:
            await self._writing.close()
        except LedgerError as error:
            # The next process that opens it goes on with fences and recovery.
            _log.info("ledger %d is not closed by its writer: %s", self.ledger_id, error)
        self._relay.failed(self._fenced)


class RemoteLedgers:
    """Creates, opens and deletes ledgers on the bookies of one cluster. Close it before its client."""

    def __init__(self, client: LedgerClient, options: LedgerOptions, clock: Clock) -> None:
        """`options`: of new ledgers; others are read as their metadata says."""
        self.for_pulsar = False
        """Whether Pulsar may read the ledgers that are created from now on."""
        self._client = client
        self._options = options
        self._clock = clock
        self._opening = SingleFlight[LedgerHandle]()
        self._writers: dict[int, RemoteWriter] = {}
        self._fates: WeakValueDictionary[int, _Fate] = WeakValueDictionary()
        self._tasks = TaskGroup("remote ledgers")
        self._counting = Rounds(self._count, self._tasks.spawn)
        self._has_room = True

    def has_room(self) -> bool:
        """Whether enough bookies accepted entries at the last check; each call requests another check."""
        self._counting.ask()
        return self._has_room

    async def _count(self) -> None:
        try:
            await self._client.cluster.new_ensemble(self._options.layout)
        except NotEnoughBookiesError:
            self._has_room = False
        else:
            self._has_room = True

    async def create(
        self,
        listener: WriterListener,
        custom_metadata: Mapping[str, bytes],
        copies: Copies | None = None,
    ) -> RemoteWriter:
        """A new open ledger; see `Ledgers.create`. Raises TooFewBookiesError, MetadataError."""
        relay = _Relay(listener)
        options = self._options if copies is None else replace(self._options, layout=QuorumLayout(*copies))
        try:
            handle = await self._client.create(
                options, relay, custom=custom_metadata, created_ms=self._clock.now_ms()
            )
        except NotEnoughBookiesError as error:
            # Too few bookies for more copies than usual is no sign for other topics' ledgers.
            self._has_room = self._has_room and copies is not None
            raise TooFewBookiesError(error.needed, error.usable) from error
        except ValueError as error:
            raise LedgerWriteError(f"the copies cannot be placed: {error}") from error
        fate, bare = self._fate(handle.ledger_id), is_bare(custom_metadata, for_pulsar=self.for_pulsar)
        writer = RemoteWriter(self, handle, relay, fate, bare=bare)
        self._writers[handle.ledger_id] = writer
        return writer

    async def open(self, ledger_id: LedgerId, *, to_replace: bool = False) -> RemoteReader:
        """A reader; see `Ledgers.open`. An open ledger is fenced and recovered on its bookies first, also one
        that is to be replaced: another owner may write it.

        Raises NoSuchLedgerError, MetadataError; LedgerUnreadableError, TooFewBookiesError when too few
        bookies answer: a later attempt may succeed; LedgerUnauthorizedError for another password.
        """
        handle = await self._opening.run(ledger_id, lambda: self._closed(ledger_id))
        return RemoteReader(handle, self._fate(ledger_id))

    async def _closed(self, ledger_id: LedgerId) -> LedgerHandle:
        if (writer := self._writers.pop(ledger_id, None)) is not None:
            await writer.give_up()
        return await self._client.open(ledger_id, self._options.password)

    async def delete(self, ledger_id: LedgerId) -> None:
        """Deletes the ledger; see `Ledgers.delete`. Bookies learn of it later. Raises MetadataError."""
        if (fate := self._fates.get(ledger_id)) is not None:
            fate.deleted = True
        if (writer := self._writers.pop(ledger_id, None)) is not None:
            await writer.give_up()
        await self._client.delete(ledger_id)

    async def tagged(self) -> AsyncIterator[tuple[LedgerId, Mapping[str, bytes]]]:
        """Every ledger with its custom metadata. Raises MetadataError, LedgerMetadataError."""
        registry = self._client.cluster.ledgers
        async for ledger_id in registry.ledger_ids():
            try:
                yield ledger_id, (await registry.read(ledger_id)).metadata.custom
            except NoSuchLedgerError:  # deleted since the listing
                continue

    def collect_metrics(self, out: Exposition) -> Iterable[None]:
        """Adds the ledger client's counters to a scrape."""
        return self._client.collect_metrics(out)

    def left(self, writer: RemoteWriter) -> None:
        """Called by a writer that has closed its ledger."""
        self._writers.pop(writer.ledger_id, None)

    def _fate(self, ledger_id: LedgerId) -> _Fate:
        fate = self._fates.get(ledger_id)
        if fate is None:
            fate = self._fates[ledger_id] = _Fate()
        return fate

    async def close(self) -> None:
        """Ends the background work and closes the connections. Open writers fail."""
        await self._tasks.close()
        await self._client.close()

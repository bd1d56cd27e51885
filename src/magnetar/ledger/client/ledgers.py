"""Creates, opens, recovers and deletes ledgers over several bookies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import CorruptDataError, LedgerError
from magnetar.ledger.api import (
    LedgerEnd,
    NoSuchEntryError,
    WriterListener,
)
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.driving import CoreDriver
from magnetar.ledger.client.errors import LedgerUnauthorizedError, LedgerUnreadableError
from magnetar.ledger.client.reading import LedgerReads
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.quorum.recovery import LedgerRecovery
from magnetar.ledger.quorum.writer import QuorumWriter
from magnetar.ledger.registry import StoredLedger
from magnetar.wire.bookkeeper.digests import Digester, DigestType, LedgerEntry, master_key


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """How a new ledger is kept."""

    layout: QuorumLayout
    digest: DigestType = DigestType.CRC32C
    password: bytes = b""


class LedgerHandle:
    """Reads a ledger that somebody closed, or one that is open as far as it was confirmed when opened."""

    def __init__(self, cluster: Cluster, stored: StoredLedger, password: bytes, end: LedgerEnd) -> None:
        self.ledger_id: Final = stored.ledger_id
        self._cluster = cluster
        self._metadata = stored.metadata
        self._end = end
        self._reads = LedgerReads(
            cluster,
            stored.ledger_id,
            _digester(stored, password),
            master_key(password),
            lambda: self.metadata,
        )

    @property
    def metadata(self) -> LedgerMetadata:
        """What this handle goes by."""
        return self._metadata

    @property
    def last_entry(self) -> int:
        """The last readable entry; -1 when there is none."""
        return self._end.last_entry

    @property
    def length_bytes(self) -> int:
        """Payload bytes of all readable entries."""
        return self._end.length_bytes

    async def read(self, first: int, last: int, bytes_max: int) -> list[LedgerEntry]:
        """Entries `first..last` (inclusive), as many as fit `bytes_max` bytes of payload, at least one.

        Raises NoSuchEntryError when `first` is not readable, CorruptDataError when no good copy exists,
        LedgerUnreadableError when too few bookies answer, NoSuchLedgerError.
        """
        if not 0 <= first <= self.last_entry:
            raise NoSuchEntryError(self.ledger_id, first)
        last = min(max(first, last), self.last_entry)
        try:
            return await self._reads.read(first, last, bytes_max)
        except (LedgerUnreadableError, CorruptDataError, NoSuchEntryError) as error:
            # Copies may have moved since.
            stored = await self._cluster.ledgers.read(self.ledger_id)
            if stored.metadata.ensembles == self._metadata.ensembles:
                raise self._lost(error) from error
            self._metadata = stored.metadata
        try:
            return await self._reads.read(first, last, bytes_max)
        except NoSuchEntryError as error:
            raise self._lost(error) from error

    def _lost(self, error: LedgerError | CorruptDataError) -> LedgerError | CorruptDataError:
        if not isinstance(error, NoSuchEntryError):
            return error
        # It was confirmed: that nobody has it is damage, not an answer.
        holders = ", ".join(self._reads.members_of(error.entry_id))
        return CorruptDataError(holders, 0, f"entry {error.entry_id} was confirmed", self.ledger_id)

    async def read_last_confirmed(self) -> int:
        """Moves `last_entry` of an open ledger forward; returns it. Raises LedgerUnreadableError."""
        if self._metadata.state is not LedgerState.CLOSED:
            stored = await self._cluster.ledgers.read(self.ledger_id)
            self._metadata = stored.metadata
            if stored.metadata.end is not None:
                self._end = stored.metadata.end
            else:
                last, length_bytes = await self._reads.last_confirmed()
                if last > self._end.last_entry:
                    self._end = LedgerEnd(last, length_bytes)
        return self.last_entry


class LedgerWriteHandle(LedgerHandle):
    """The writer of a ledger. Also reads what is confirmed."""

    def __init__(
        self, cluster: Cluster, stored: StoredLedger, password: bytes, listener: WriterListener
    ) -> None:
        metadata = stored.metadata
        digester = _digester(stored, password)
        self._core = QuorumWriter(stored.ledger_id, metadata, stored.version, digester)
        super().__init__(cluster, stored, password, LedgerEnd(-1, 0))
        self._driver = CoreDriver(
            cluster,
            self._core,
            _layout_of(metadata),
            master_key(password),
            advanced=listener.durable,
            failed=listener.failed,
        )

    @property
    def metadata(self) -> LedgerMetadata:
        return self._core.metadata

    @property
    def last_entry(self) -> int:
        return self._core.last_confirmed

    @property
    def length_bytes(self) -> int:
        return self._core.confirmed_bytes

    @property
    def last_pushed(self) -> int:
        """Last entry that was appended; -1 when there is none."""
        return self._core.last_pushed

    @property
    def pending_bytes(self) -> int:
        """Payload bytes that were appended and are not confirmed."""
        return self._core.pending_bytes

    def append(self, payloads: Sequence[bytes]) -> int:
        """Takes the next entries and returns the id of the first; never waits.

        Costs a digest and a copy of each. Raises LedgerClosedError, or the error that ended the writer.
        """
        if self._driver.error is not None:
            raise self._driver.error
        first = self._core.last_pushed + 1
        self._driver.do(self._core.append(payloads))
        return first

    async def close(self) -> LedgerEnd:
        """Waits until all is confirmed, and closes the ledger. May be called twice. Raises LedgerError."""
        self._driver.do(self._core.close())
        return await self._driver.end()


class LedgerClient:
    """Ledgers of one cluster of bookies."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster: Final = cluster
        self._closed = False

    async def create(
        self,
        options: LedgerOptions,
        listener: WriterListener,
        *,
        custom: Mapping[str, bytes] | None = None,
        created_ms: int | None = None,
    ) -> LedgerWriteHandle:
        """A new open ledger. Raises NotEnoughBookiesError, MetadataError."""
        layout = options.layout
        ensemble = await self.cluster.new_ensemble(layout)
        metadata = LedgerMetadata(
            state=LedgerState.OPEN,
            end=None,
            ensembles=((0, ensemble),),
            write_quorum=layout.write_quorum,
            ack_quorum=layout.ack_quorum,
            created_ms=created_ms,
            custom=dict(custom or {}),
            password=options.password,
            digest=options.digest,
        )
        stored = await self.cluster.ledgers.create(metadata)
        return LedgerWriteHandle(self.cluster, stored, options.password, listener)

    async def open(self, ledger_id: int, password: bytes = b"", *, recover: bool = True) -> LedgerHandle:
        """A reader.

        With `recover` an open ledger is fenced and closed first: its writer has lost it. Without, it is read
        as far as it is confirmed. Raises NoSuchLedgerError, LedgerUnreadableError, LedgerUnauthorizedError,
        NotEnoughBookiesError, MetadataError.
        """
        stored = await self.cluster.ledgers.read(ledger_id)
        if stored.metadata.password != password:
            raise LedgerUnauthorizedError(f"ledger {ledger_id} has another password")
        if stored.metadata.end is not None:
            return LedgerHandle(self.cluster, stored, password, stored.metadata.end)
        if recover:
            end = await self._recover(stored, password)
            stored = await self.cluster.ledgers.read(ledger_id)
            return LedgerHandle(self.cluster, stored, password, end)
        handle = LedgerHandle(self.cluster, stored, password, LedgerEnd(-1, 0))
        await handle.read_last_confirmed()
        return handle

    async def _recover(self, stored: StoredLedger, password: bytes) -> LedgerEnd:
        metadata = stored.metadata
        digester = _digester(stored, password)
        core = LedgerRecovery(stored.ledger_id, metadata, stored.version, digester)
        driver = CoreDriver(self.cluster, core, _layout_of(metadata), master_key(password))
        driver.do(core.start())
        return await driver.end()

    async def delete(self, ledger_id: int) -> None:
        """Deletes the ledger; bookies find out and reclaim the space. Not an error when there is none."""
        await self.cluster.ledgers.delete(ledger_id)

    async def close(self) -> None:
        """Drops all connections. Writers that were not closed fail."""
        await self.cluster.close()


def _digester(stored: StoredLedger, password: bytes) -> Digester:
    # Metadata of the first version does not say; the oldest digest is what those ledgers have.
    return Digester(stored.ledger_id, stored.metadata.digest or DigestType.CRC32, password)


def _layout_of(metadata: LedgerMetadata) -> QuorumLayout:
    return QuorumLayout(len(metadata.ensembles[-1][1]), metadata.write_quorum, metadata.ack_quorum)

"""Reads of one ledger by one client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.base.errors import CorruptDataError, LedgerError
from magnetar.ledger.api import LedgerEnd, NoSuchEntryError
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.errors import LedgerUnreadableError
from magnetar.ledger.client.ledger_reads import LedgerReads
from magnetar.ledger.client.tail_reads import TailReads
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.registry import StoredLedger
from magnetar.wire.bookkeeper.digests import Digester, DigestType, LedgerEntry, master_key


class LedgerHandle:
    """Reads a closed ledger, or an open one up to the entry that was confirmed when it was opened."""

    def __init__(self, cluster: Cluster, stored: StoredLedger, password: bytes, end: LedgerEnd) -> None:
        self.ledger_id: Final = stored.ledger_id
        self._cluster = cluster
        self._metadata = stored.metadata
        self._end = end
        self._measured = end.last_entry
        """The last entry that `length_bytes` includes."""
        self._reads = LedgerReads(
            cluster,
            stored.ledger_id,
            digester_of(stored, password),
            master_key(password),
            lambda: self.metadata,
            confirmed=self._confirmed,
        )
        self._tail = TailReads(
            cluster, stored.ledger_id, digester_of(stored, password), lambda: self.metadata
        )

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata that this handle uses."""
        return self._metadata

    @property
    def last_entry(self) -> int:
        """The last readable entry; -1 when there is none."""
        return self._end.last_entry

    @property
    def length_bytes(self) -> int:
        """Payload bytes of all readable entries; for an open ledger as far as they are known."""
        return self._end.length_bytes

    @property
    def is_closed(self) -> bool:
        """Whether the ledger was closed at the last `refresh`."""
        return self.metadata.state is LedgerState.CLOSED

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
            # Copies may have been moved since.
            stored = await self._cluster.ledgers.read(self.ledger_id)
            if stored.metadata.ensembles == self._metadata.ensembles:
                raise self._lost(error) from error
            self._learn(stored.metadata)
        try:
            return await self._reads.read(first, last, bytes_max)
        except NoSuchEntryError as error:
            raise self._lost(error) from error

    def _lost(self, error: LedgerError | CorruptDataError) -> LedgerError | CorruptDataError:
        if not isinstance(error, NoSuchEntryError):
            return error
        # It was confirmed, so an entry without any copy is damage, not an answer.
        holders = ", ".join(self._reads.members_of(error.entry_id))
        return CorruptDataError(holders, 0, f"entry {error.entry_id} was confirmed", self.ledger_id)

    # The end of an open ledger

    def _confirmed(self, last_entry: int) -> None:
        """Records an entry that an entry or a bookie reported as confirmed. A closed ledger ends where its
        metadata says."""
        if last_entry > self._end.last_entry and not self.is_closed:
            self._end = LedgerEnd(last_entry, self._end.length_bytes)

    async def refresh(self) -> None:
        """Reads the metadata again: whether the ledger was closed, or has other bookies. Raises
        NoSuchLedgerError."""
        if self.is_closed:
            return
        self._learn((await self._cluster.ledgers.read(self.ledger_id)).metadata)

    def _learn(self, read: LedgerMetadata) -> None:
        """The metadata was read. Another call may have found the ledger closed meanwhile: then an answer that
        says it is open is an older one."""
        if self.is_closed and read.state is not LedgerState.CLOSED:
            return
        self._metadata = read
        if read.end is not None:
            self._end = read.end

    async def read_last_confirmed(self) -> int:
        """Moves `last_entry` of an open ledger forward to what enough of its bookies know; returns it.

        Costs a read of the metadata and a read at every bookie. Raises LedgerUnreadableError.
        """
        await self.refresh()
        if not self.is_closed:
            self._confirmed(await self._tail.last_confirmed())
            last = self.last_entry
            if self._measured < last:
                (entry,) = await self._reads.read(last, last, 1)
                # Another call may have measured a later entry meanwhile, or found the ledger closed.
                if self._measured < last and not self.is_closed:
                    self._measured = last
                    self._end = LedgerEnd(self.last_entry, entry.length_bytes)
        return self.last_entry

    async def try_read_last_confirmed(self) -> int:
        """Moves `last_entry` of an open ledger forward to the answer of the first bookie that knows of more.

        Never fails: a bookie without an answer counts as knowing nothing. `read_last_confirmed` misses less.
        """
        if not self.is_closed:
            self._confirmed(await self._tail.later_than(self.last_entry))
        return self.last_entry

    @property
    def can_wait(self) -> bool:
        """Whether bookies can be asked to wait: in version 3."""
        return not self._cluster.options.use_v2

    async def wait_for_more(self, wait_s: float) -> LedgerEntry | None:
        """Waits until an open ledger is confirmed beyond `last_entry`, which moves, or the time is up.

        Returns the next entry if it came with the answer. `wait_s`: less than the timeout of an answer.
        Bookies also answer when the ledger is fenced. Version 3 only.
        """
        assert self.can_wait
        if self.is_closed:
            return None
        # Another call may find it closed meanwhile: `_confirmed` looks again.
        last, entry = await self._tail.wait(self.last_entry, wait_s)
        self._confirmed(last)
        return entry

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls back when `refresh` may find a change; returns the cancel."""
        return self._cluster.ledgers.watch(self.ledger_id, changed)


def digester_of(stored: StoredLedger, password: bytes) -> Digester:
    """The digester of the ledger's entries."""
    # Metadata of the first version names no digest; those ledgers have the oldest one.
    return Digester(stored.ledger_id, stored.metadata.digest or DigestType.CRC32, password)


def layout_of(metadata: LedgerMetadata) -> QuorumLayout:
    """The quorums of the ledger's last ensemble."""
    return QuorumLayout(len(metadata.ensembles[-1][1]), metadata.write_quorum, metadata.ack_quorum)

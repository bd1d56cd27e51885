"""What the managed log knows of tiered storage, and what that knows of a log."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from magnetar.base.entries import EntryRun
from magnetar.base.errors import LogError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import LedgerReader
from magnetar.tiered.context import OffloadContext, OffloadedCopy


class LedgerMovedError(LogError):
    """The ledger has left the list, or its copy is another one than the caller knows."""


@dataclass(frozen=True, slots=True)
class SealedLedger:
    """A ledger of a log whose end is stored."""

    ledger_id: LedgerId
    entries: int
    size_bytes: int
    timestamp_ms: int
    """Broker time of the last entry, Unix ms."""
    offload: OffloadContext | None
    held: bool = False
    """Whether it has entries that readers do not get, yet or ever: then it is not copied, as everything that
    reads copies would show them."""


class CopyReader(LedgerReader, Protocol):
    """Reads a ledger's copy. Beyond what a ledger's reader raises: MissingObjectError, DamagedObjectError,
    HistoryError, StoreError; all name object and log."""

    async def position_at(self, time_ms: int) -> int:
        """The first entry with broker time >= `time_ms`, Unix ms; the number of entries when there is none.

        A few ranged reads, whatever the size of the copy.
        """


class Follower(Protocol):
    """Something outside of the stored lists that names objects of copies: tables of a lake."""

    def changed(self, log_name: str) -> None:
        """A copy of this log became complete, or the log was deleted. Returns at once, raises nothing."""

    async def retire(self, log_name: str, attempts: Collection[UUID]) -> None:
        """Objects of these attempts are about to be deleted: nothing names them after.

        Raises StorageError, MetadataError: then they must stay.
        """


class Tiers(Protocol):
    """Copies of ledgers in object stores."""

    async def retire(self, log_name: str, copies: Sequence[OffloadedCopy]) -> None:
        """To be called before copies are deleted, once for all of them; see `Follower.retire`."""

    def changed(self, log_name: str) -> None:
        """The log was deleted; see `Follower.changed`."""

    def place(self, url: str) -> str:
        """Where the store is now that a list names by this URL."""

    def reader(self, log_name: str, copy: OffloadedCopy, *, entries: int, size_bytes: int) -> CopyReader:
        """Reads a complete copy; `entries` and `size_bytes` are those of the ledger. Asks the store nothing
        yet. Raises StoreSetupError."""

    async def delete(self, log_name: str, copy: OffloadedCopy) -> None:
        """Deletes the objects of an attempt, however far it came. Not an error when there are none.

        Raises StoreError: some may be left.
        """


class OffloadedLog(Protocol):
    """A log that is open, as tiered storage sees it."""

    @property
    def name(self) -> str:
        """`tenant/namespace/persistent/<encoded topic>`."""

    @property
    def open(self) -> bool:
        """Whether this process still has the log."""

    def sealed(self) -> Sequence[SealedLedger]:
        """The ledgers whose end is stored, in order."""

    @property
    def first_behind(self) -> LedgerId | None:
        """The first of the newest ledgers that have no complete copy; None when these hold nothing."""

    @property
    def written(self) -> int | None:
        """The ledger that takes entries."""

    async def first_time_ms(self, ledger_id: LedgerId) -> int:
        """Broker time of a ledger's first entry, Unix ms. Raises LedgerError, CorruptDataError."""

    def leave_ledger(self) -> None:
        """Has the ledger that takes entries sealed, soon, when it holds any."""

    async def read(self, ledger_id: LedgerId, first_entry: int, bytes_max: int) -> list[EntryRun]:
        """Entries of the bookies' copy, as `LedgerReader.read`. Raises LedgerError, CorruptDataError."""

    async def remember(
        self, ledger_id: LedgerId, known: OffloadContext | None, context: OffloadContext
    ) -> None:
        """Stores what is to be known of a ledger's copy, where `known` still is.

        Durable on return. Raises LedgerMovedError, LogFencedError, and MetadataError: then it is unknown
        whether it was stored.
        """

    @property
    def retention(self) -> tuple[int, int]:
        """How long and how much of what was consumed is kept: milliseconds and bytes, -1 for everything."""

    @property
    def replaced(self) -> int:
        """Copies that others have replaced, and that are not deleted yet."""

    async def begin_merge(self, copy: OffloadedCopy) -> None:
        """Stores that an object is about to be made of those of several ledgers; durable on return.

        Until `end_merge` or `drop_merge` it is not deleted. Raises LogFencedError, MetadataError.
        """

    async def end_merge(
        self, made: OffloadedCopy, members: Sequence[SealedLedger], delete_after_ms: int
    ) -> None:
        """Has these ledgers read from the object that was made, if all are as they are given; durable on
        return.

        Those that they had are deleted when `delete_after_ms` has come. Raises LedgerMovedError,
        LogFencedError, and MetadataError: then it is unknown whether it was stored.
        """

    def drop_merge(self, attempt: UUID) -> None:
        """Nothing comes of it: what there is of the object is deleted by `delete_copies`."""

    async def delete_copies(self) -> None:
        """Deletes the objects of ledgers that retention removed, and what was replaced long enough ago; what
        fails is left to the next call."""

    async def delete_local(self, ledger_id: LedgerId) -> None:
        """Makes a complete copy the only one: stores that, then deletes the ledger from the bookies.

        Raises LedgerMovedError, LogFencedError, MetadataError. What the bookies do not delete now goes when
        the log is opened next.
        """

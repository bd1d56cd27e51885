"""The interfaces between the managed log and tiered storage, in both directions."""

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
    """The ledger has left the list, or the list now names another copy of it than the caller expects."""


@dataclass(frozen=True, slots=True)
class SealedLedger:
    """A closed ledger of a log: its last entry is recorded in the list."""

    ledger_id: LedgerId
    entries: int
    size_bytes: int
    timestamp_ms: int
    """Broker time of the last entry, Unix ms."""
    offload: OffloadContext | None
    held: bool = False
    """Whether it is not known for good yet which of its entries readers get. It is then not copied, because
    readers of copies get every entry that is there."""


class CopyReader(LedgerReader, Protocol):
    """Reads a ledger's copy. Beyond what a ledger's reader raises: MissingObjectError, DamagedObjectError,
    HistoryError, StoreError; all name object and log."""

    async def position_at(self, time_ms: int) -> int:
        """The first entry with broker time >= `time_ms`, Unix ms; the number of entries when there is none.

        A few ranged reads, whatever the size of the copy.
        """


class Follower(Protocol):
    """A user of copies' objects besides the stored lists, such as the tables of a lake."""

    def changed(self, log_name: str) -> None:
        """A copy of this log became complete, or the log was deleted. Returns at once, raises nothing."""

    async def retire(self, log_name: str, attempts: Collection[UUID]) -> None:
        """Removes all references to the objects of these attempts, before they are deleted.

        Raises StorageError, MetadataError: the objects must then stay.
        """


class Tiers(Protocol):
    """Copies of ledgers in object stores."""

    async def retire(self, log_name: str, copies: Sequence[OffloadedCopy]) -> None:
        """Call it once before copies are deleted, with all of them; see `Follower.retire`."""

    def changed(self, log_name: str) -> None:
        """The log was deleted; see `Follower.changed`."""

    def place(self, url: str) -> str:
        """The present URL of the store that a list names by `url`."""

    def reader(self, log_name: str, copy: OffloadedCopy, *, entries: int, size_bytes: int) -> CopyReader:
        """A reader of a complete copy; `entries` and `size_bytes` are those of the ledger. Makes no request
        to the store yet. Raises StoreSetupError."""

    async def delete(self, log_name: str, copy: OffloadedCopy) -> None:
        """Deletes all objects of an attempt, finished or not. Not an error when there are none.

        Raises StoreError; some objects may then be left.
        """


class OffloadedLog(Protocol):
    """A log that is open, as tiered storage sees it."""

    @property
    def name(self) -> str:
        """`tenant/namespace/persistent/<encoded topic>`."""

    @property
    def open(self) -> bool:
        """Whether this process still has the log open."""

    def sealed(self) -> Sequence[SealedLedger]:
        """The ledgers whose end is stored, in order."""

    @property
    def first_behind(self) -> LedgerId | None:
        """The oldest ledger after the last complete copy; None when no entry lies there."""

    @property
    def written(self) -> int | None:
        """The ledger that takes entries."""

    async def first_time_ms(self, ledger_id: LedgerId) -> int:
        """Broker time of a ledger's first entry, Unix ms. Raises LedgerError, CorruptDataError."""

    def leave_ledger(self) -> None:
        """Requests that the ledger that takes entries is sealed soon, if it holds any."""

    async def read(self, ledger_id: LedgerId, first_entry: int, bytes_max: int) -> list[EntryRun]:
        """Entries of the bookies' copy, as `LedgerReader.read`, with `LEFT_OUT` in place of those that
        readers never get. Raises LedgerError, CorruptDataError."""

    async def remember(
        self, ledger_id: LedgerId, known: OffloadContext | None, context: OffloadContext
    ) -> None:
        """Stores `context` as the record of a ledger's copy, if the stored record still is `known`.

        Durable on return. Raises LedgerMovedError, LogFencedError, and MetadataError, after which it is
        unknown whether the record was stored.
        """

    @property
    def retention(self) -> tuple[int, int]:
        """Retention of consumed messages: milliseconds and bytes, -1 without a bound."""

    @property
    def replaced(self) -> int:
        """Number of replaced copies that are not deleted yet."""

    async def begin_merge(self, copy: OffloadedCopy) -> None:
        """Notes in the list an object that a merge is about to write; durable on return.

        The object is not deleted until `end_merge` or `drop_merge`. Raises LogFencedError, MetadataError.
        """

    async def end_merge(
        self, made: OffloadedCopy, members: Sequence[SealedLedger], delete_after_ms: int
    ) -> None:
        """Makes the list name the merged object for these ledgers, if their records are as in `members`;
        durable on return.

        Their former objects are deleted after `delete_after_ms`, Unix ms. Raises LedgerMovedError,
        LogFencedError, and MetadataError, after which it is unknown whether the change was stored.
        """

    def drop_merge(self, attempt: UUID) -> None:
        """Gives a merge up: `delete_copies` deletes what was written of its object."""

    async def delete_copies(self) -> None:
        """Deletes the objects of ledgers that retention removed, and replaced objects whose time has come.
        Deletions that fail are repeated by the next call."""

    async def delete_local(self, ledger_id: LedgerId) -> None:
        """Makes a complete copy the only one: records that in the list, then deletes the ledger from the
        bookies.

        Raises LedgerMovedError, LogFencedError, MetadataError. If the bookies cannot delete it now, the next
        opening of the log does.
        """

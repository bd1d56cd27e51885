"""Ledgers: BookKeeper's model of a write-once sequence of entries with one writer.

The managed log uses these protocols only, so the ledgers may be in the bookie of the same process or in an
ensemble of bookies behind sockets.

A ledger is OPEN while its writer lives, IN_RECOVERY while another owner closes it, then CLOSED for good.
Entries are numbered from 0 without gaps. The writer reports a high-water mark: all entries up to e are
durable. There is no future or callback per entry.

Source: BookKeeper's ledger API and protocol (ledger metadata, fencing, last add confirmed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from magnetar.base.entries import EntryRun
from magnetar.base.errors import LedgerError
from magnetar.base.ids import LedgerId


class NoSuchLedgerError(LedgerError):
    """The ledger does not exist or was deleted."""

    def __init__(self, ledger_id: LedgerId) -> None:
        super().__init__(f"ledger {ledger_id} does not exist")
        self.ledger_id = ledger_id


class NoSuchEntryError(LedgerError):
    """The ledger certainly holds no such entry. Never raised when a copy could not be read."""

    def __init__(self, ledger_id: LedgerId, entry_id: int) -> None:
        super().__init__(f"ledger {ledger_id} has no entry {entry_id}")
        self.ledger_id = ledger_id
        self.entry_id = entry_id


class LedgerFencedError(LedgerError):
    """Another owner has fenced the ledger; this writer cannot write it any more."""


class LedgerClosedError(LedgerError):
    """The writer was closed."""


class LedgerWriteError(LedgerError):
    """Entries could not be made durable; the writer accepts no more. The cause is chained."""


@dataclass(frozen=True, slots=True)
class LedgerEnd:
    """The end of a closed ledger."""

    last_entry: int
    """Last entry id; -1 when the ledger is empty."""
    length_bytes: int
    """Bytes of all entries."""


class Copies(NamedTuple):
    """Number of bookies of a ledger: ensemble >= written >= acknowledged >= 1."""

    ensemble: int
    """E: number of bookies that share its entries."""
    written: int
    """Qw: copies of an entry."""
    acknowledged: int
    """Qa: copies that are durable before an entry counts as durable."""


class WriterListener(Protocol):
    """Notified on the event loop of how far a ledger is durable. Calls come in order and never nest."""

    def durable(self, last_entry: int) -> None:
        """Every entry up to and including `last_entry` is durable."""

    def failed(self, error: LedgerError) -> None:
        """Entries after the last `durable` mark may be lost; called at most once, as the last call."""


class LedgerReader(Protocol):
    """Reads entries of one ledger; for an open one up to the durable mark."""

    @property
    def ledger_id(self) -> LedgerId: ...

    @property
    def last_entry(self) -> int:
        """Last readable entry; -1 when there is none."""

    @property
    def length_bytes(self) -> int:
        """Bytes of all readable entries."""

    def read_now(self, first: int, last: int, bytes_max: int) -> list[EntryRun] | None:
        """Like `read`, but returns None instead of waiting for a device or a network."""

    async def read(self, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        """Entries `first..last` (inclusive), or as many of the first ones as fit `bytes_max` bytes.

        At least one entry is returned. Runs are in order without gaps. Raises NoSuchEntryError when
        `first` is not readable, NoSuchLedgerError when the ledger was deleted meanwhile,
        CorruptDataError when no good copy exists.
        """


@runtime_checkable
class SaysLoss(Protocol):
    """A reader that knows whether damage may have cut off the end of its ledger."""

    @property
    def loss(self) -> str:
        """What damage may have taken after the last entry, in words; empty: nothing."""


def may_have_lost(reader: LedgerReader) -> str:
    """What damage may have taken after a ledger's last entry, in words; empty: nothing that is known."""
    return reader.loss if isinstance(reader, SaysLoss) else ""


class LedgerWriter(LedgerReader, Protocol):
    """The only writer of an open ledger; it also reads what is durable."""

    @property
    def last_pushed(self) -> int:
        """Last appended entry; -1 at first. `last_entry` is the last durable one."""

    @property
    def pending_bytes(self) -> int:
        """Bytes of appended entries that are not durable yet."""

    def append(
        self, entries: list[bytes], counts: list[int] | None, base_index: int, broker_time_ms: int
    ) -> int:
        """Appends entries and returns the id of the first; never blocks, never waits.

        The arguments are those of EntryRun and are returned with the entries on reading. The caller must not
        change the list or the bytes any more. Raises LedgerClosedError, LedgerFencedError, LedgerWriteError
        (after `failed`).
        """

    async def close(self) -> LedgerEnd:
        """Waits until all that was appended is durable, then seals the ledger. May be called twice."""


class Ledgers(Protocol):
    """Creates, opens and deletes ledgers."""

    def has_room(self) -> bool:
        """Whether a writer created now would find space, to be asked after one failed on a full disk."""

    async def create(
        self,
        listener: WriterListener,
        custom_metadata: Mapping[str, bytes],
        copies: Copies | None = None,
    ) -> LedgerWriter:
        """Creates an open ledger with an id higher than all before; its metadata is durable on return.

        `copies`: how many bookies hold it; None: the process's default. Ignored where there is one bookie.

        `custom_metadata` is stored with the ledger (Pulsar tags: `application`, `component`,
        `pulsar/managed-ledger`, `pulsar/cursor`).
        """

    async def open(self, ledger_id: LedgerId, *, to_replace: bool = False) -> LedgerReader:
        """Opens a reader. A ledger left open by a writer that is gone is fenced, recovered and closed first.

        `to_replace`: the ledger is read once and deleted when its content is stored elsewhere. Where no other
        process could write it, its closing need not be stored.

        Raises NoSuchLedgerError.
        """

    async def delete(self, ledger_id: LedgerId) -> None:
        """Deletes the ledger; its space is reclaimed later. Not an error when it does not exist."""

"""Ledgers: BookKeeper's model of a write-once sequence of entries with one writer.

The managed log is written against these protocols only, so that the ledgers may lie in the bookie of
the same process or in an ensemble of bookies behind sockets.

A ledger is OPEN while its writer lives, IN_RECOVERY while another owner closes it, CLOSED for ever
after. Entries are numbered from 0 without gaps. The writer's promise is a high-water mark:
everything up to entry e is durable. There is no future or callback per entry.

Source: BookKeeper's ledger API and protocol (ledger metadata, fencing, last add confirmed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from magnetar.base.entries import EntryRun
from magnetar.base.errors import LedgerError


class NoSuchLedgerError(LedgerError):
    """The ledger does not exist or was deleted."""

    def __init__(self, ledger_id: int) -> None:
        super().__init__(f"ledger {ledger_id} does not exist")
        self.ledger_id = ledger_id


class NoSuchEntryError(LedgerError):
    """The ledger certainly holds no such entry. Never said when a copy could not be read."""

    def __init__(self, ledger_id: int, entry_id: int) -> None:
        super().__init__(f"ledger {ledger_id} has no entry {entry_id}")
        self.ledger_id = ledger_id
        self.entry_id = entry_id


class LedgerFencedError(LedgerError):
    """Another owner has fenced the ledger; this writer has lost it for good."""


class LedgerClosedError(LedgerError):
    """The writer was closed."""


class LedgerWriteError(LedgerError):
    """Entries could not be made durable; the writer takes no more. The cause is chained."""


@dataclass(frozen=True, slots=True)
class LedgerEnd:
    """Where a closed ledger ends."""

    last_entry: int
    """Last entry id; -1 when the ledger is empty."""
    length_bytes: int
    """Bytes of all entries."""


class Copies(NamedTuple):
    """How many bookies a ledger lies on: ensemble >= written >= acknowledged >= 1."""

    ensemble: int
    """E: bookies that share its entries."""
    written: int
    """Qw: copies of an entry."""
    acknowledged: int
    """Qa: copies that are durable before an entry counts as durable."""


class WriterListener(Protocol):
    """Told, on the event loop, how far a ledger is durable. Calls come in order and never nest."""

    def durable(self, last_entry: int) -> None:
        """Every entry up to and including `last_entry` is durable."""

    def failed(self, error: LedgerError) -> None:
        """Nothing beyond the last `durable` mark is known to be kept; called at most once, last."""


class LedgerReader(Protocol):
    """Reads entries of one ledger; for an open one up to the durable mark."""

    @property
    def ledger_id(self) -> int: ...

    @property
    def last_entry(self) -> int:
        """Last readable entry; -1 when there is none."""

    @property
    def length_bytes(self) -> int:
        """Bytes of all readable entries."""

    def read_now(self, first: int, last: int, bytes_max: int) -> list[EntryRun] | None:
        """Like `read`, but None instead of waiting for a device or a network."""

    async def read(self, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        """Entries `first..last` (inclusive), or as many of the first ones as fit `bytes_max` bytes.

        At least one entry is returned. Runs are in order without gaps. Raises NoSuchEntryError when
        `first` is not readable, NoSuchLedgerError when the ledger was deleted meanwhile,
        CorruptDataError when no good copy exists.
        """


@runtime_checkable
class SaysLoss(Protocol):
    """A reader that knows whether its ledger went on behind the last entry."""

    @property
    def loss(self) -> str:
        """What damage may have taken there, in words; empty: nothing."""


def may_have_lost(reader: LedgerReader) -> str:
    """What damage may have taken behind a ledger's last entry, in words; empty: nothing that is known of."""
    return reader.loss if isinstance(reader, SaysLoss) else ""


class LedgerWriter(LedgerReader, Protocol):
    """The only writer of an open ledger; it also reads what is durable."""

    @property
    def last_pushed(self) -> int:
        """Last entry handed to `append`; -1 at first. `last_entry` is the last durable one."""

    @property
    def pending_bytes(self) -> int:
        """Bytes handed to `append` that are not durable yet."""

    def append(
        self, entries: list[bytes], counts: list[int] | None, base_index: int, broker_time_ms: int
    ) -> int:
        """Takes the next entries and returns the id of the first; never blocks, never waits.

        Args are those of EntryRun and come back with the entries on reading. The list and the bytes
        belong to the ledger from here on. Raises LedgerClosedError, LedgerFencedError,
        LedgerWriteError (after `failed`).
        """

    async def close(self) -> LedgerEnd:
        """Waits until all that was appended is durable, then seals the ledger. May be called twice."""


class Ledgers(Protocol):
    """Creates, opens and deletes ledgers."""

    def has_room(self) -> bool:
        """Whether writers made now would find room, to be asked after one failed on a full disk."""

    async def create(
        self,
        listener: WriterListener,
        custom_metadata: Mapping[str, bytes],
        copies: Copies | None = None,
    ) -> LedgerWriter:
        """A new open ledger with an id higher than any before; exists durably on return.

        `copies`: how many bookies hold it; None: as many as the process was told. Where there is one bookie
        they say nothing.

        `custom_metadata` is kept with the ledger (Pulsar tags: `application`, `component`,
        `pulsar/managed-ledger`, `pulsar/cursor`).
        """

    async def open(self, ledger_id: int, *, to_replace: bool = False) -> LedgerReader:
        """A reader. A ledger left open by a writer that is gone is fenced, recovered and closed first.

        `to_replace`: it is read once and deleted when its content lies elsewhere. Where nobody else could
        write it, that it is closed need not be stored.

        Raises NoSuchLedgerError.
        """

    async def delete(self, ledger_id: int) -> None:
        """Deletes the ledger; its space is reclaimed later. Not an error when it does not exist."""

"""Responses of bookies, in one form for both versions of the protocol.

`txn_id` is the request's in version 3 and None in version 2. `ledger_id` and `entry_id` are the request's:
the response to a read of the last entry has entry id -1, whatever entry it carries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from magnetar.base.ids import LedgerId
from magnetar.wire.bookkeeper.status import Status


class Added:
    """Answers to adds to one ledger that had the same outcome."""

    __slots__ = ("entry_ids", "ledger_id", "status", "txn_ids")

    ledger_id: LedgerId
    status: Status
    entry_ids: list[int]
    txn_ids: list[int] | None

    def __init__(
        self, ledger_id: LedgerId, status: Status, entry_ids: list[int], txn_ids: list[int] | None
    ) -> None:
        self.ledger_id = ledger_id
        self.status = status
        self.entry_ids = entry_ids
        self.txn_ids = txn_ids

    def __repr__(self) -> str:
        return f"Added(ledger={self.ledger_id}, {self.status.name}, {self.entry_ids}, txns={self.txn_ids})"


@dataclass(frozen=True, slots=True)
class ReadDone:
    """One entry, or the reason why it is missing."""

    ledger_id: LedgerId
    entry_id: int
    status: Status
    txn_id: int | None = None
    entry: bytes | None = None
    """The whole entry: head, digest, payload. None when the status is not OK."""
    lac_max: int | None = None
    """The highest last add confirmed that the bookie knows (version 3)."""
    lac_time_ms: int | None = None
    """When the bookie learned of it, in Unix milliseconds (version 3)."""


@dataclass(frozen=True, slots=True)
class BatchReadDone:
    """Consecutive entries from the first one asked for; none unless the status is OK."""

    ledger_id: LedgerId
    first_entry: int
    request_id: int
    status: Status
    entries: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class LacWritten:
    ledger_id: LedgerId
    status: Status
    txn_id: int


@dataclass(frozen=True, slots=True)
class LacRead:
    ledger_id: LedgerId
    status: Status
    txn_id: int
    blob: bytes | None = None
    """The blob stored by WriteLac; None when there is none."""
    last_entry: bytes | None = None
    """The last entry; its head carries a last add confirmed too."""


@dataclass(frozen=True, slots=True)
class Forced:
    ledger_id: LedgerId
    status: Status
    txn_id: int


@dataclass(frozen=True, slots=True)
class EntriesListed:
    ledger_id: LedgerId
    status: Status
    txn_id: int
    entries: bytes | None = None
    """The encoded list, see `availability`."""


@dataclass(frozen=True, slots=True)
class BookieInfoDone:
    status: Status
    txn_id: int
    capacity_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TlsStarts:
    status: Status
    txn_id: int


@dataclass(frozen=True, slots=True)
class AuthDone:
    plugin: str
    payload: bytes
    status: Status = Status.OK
    txn_id: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A response of version 3 without a body: the operation is not supported, or the client is not
    authenticated."""

    operation: int
    status: Status
    txn_id: int


Response: TypeAlias = (
    Added
    | ReadDone
    | BatchReadDone
    | LacWritten
    | LacRead
    | Forced
    | EntriesListed
    | BookieInfoDone
    | TlsStarts
    | AuthDone
    | Refused
)

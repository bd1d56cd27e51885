"""Requests of ledger clients to bookies, in one form for both versions of the protocol.

`txn_id` is a request's number in version 3, chosen by the client and returned in the response. Version 2 has
none: there `txn_id` is None, and a response belongs to the request with its ledger, entry and operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from magnetar.base.ids import LedgerId

LAST_ENTRY = -1
"""Entry id of a read of the last entry that the bookie holds; the response repeats it."""


class AddRun:
    """Consecutive adds to one ledger on a connection, which differ only in entry and request number."""

    __slots__ = (
        "deferred_sync",
        "entries",
        "entry_ids",
        "high_priority",
        "ledger_id",
        "master_key",
        "recovery",
        "size_bytes",
        "txn_ids",
    )

    ledger_id: LedgerId
    master_key: bytes
    recovery: bool
    """Written by a recovering or repairing client: allowed although the ledger is fenced."""
    high_priority: bool
    deferred_sync: bool
    """The bookie may respond before the entries are durable."""
    entry_ids: list[int]
    entries: list[bytes]
    """Whole entries: head, digest, payload."""
    txn_ids: list[int] | None
    size_bytes: int
    """Bytes of all entries."""

    def __init__(
        self,
        ledger_id: LedgerId,
        master_key: bytes,
        *,
        recovery: bool = False,
        high_priority: bool = False,
        deferred_sync: bool = False,
        v3: bool = False,
    ) -> None:
        self.ledger_id = ledger_id
        self.master_key = master_key
        self.recovery = recovery
        self.high_priority = high_priority
        self.deferred_sync = deferred_sync
        self.entry_ids = []
        self.entries = []
        self.txn_ids = [] if v3 else None
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"AddRun(ledger={self.ledger_id}, entries={self.entry_ids}, txns={self.txn_ids})"


@dataclass(frozen=True, slots=True)
class Read:
    """Reads one entry, or the last one; can fence the ledger, or wait until the ledger grows."""

    ledger_id: LedgerId
    entry_id: int
    """`LAST_ENTRY`, or an entry id >= 0."""
    txn_id: int | None = None
    fence: bool = False
    """Fence the ledger before reading; needs `master_key`."""
    master_key: bytes | None = None
    high_priority: bool = False
    previous_lac: int | None = None
    """Wait until the last add confirmed exceeds this (version 3)."""
    timeout_ms: int | None = None
    """How long to wait, in milliseconds; None does not wait."""
    piggyback: bool = False
    """Return entry `previous_lac` + 1 when the wait succeeds."""


@dataclass(frozen=True, slots=True)
class BatchRead:
    """Reads consecutive entries in one response (version 2)."""

    ledger_id: LedgerId
    first_entry: int
    request_id: int
    count_max: int
    """Entries at most; <= 0 means as many as fit."""
    bytes_max: int
    """Bytes of the response at most."""
    fence: bool = False
    master_key: bytes | None = None


@dataclass(frozen=True, slots=True)
class WriteLac:
    """Stores a last add confirmed (version 3)."""

    ledger_id: LedgerId
    lac: int
    master_key: bytes
    blob: bytes
    """The same as a blob of `Digester.seal_lac`."""
    txn_id: int


@dataclass(frozen=True, slots=True)
class ReadLac:
    """Reads the stored last add confirmed, and the last entry (version 3)."""

    ledger_id: LedgerId
    txn_id: int


@dataclass(frozen=True, slots=True)
class ForceLedger:
    """Responds once all earlier adds are durable (version 3)."""

    ledger_id: LedgerId
    txn_id: int


@dataclass(frozen=True, slots=True)
class ListEntries:
    """Lists the entries of a ledger that the bookie holds (version 3)."""

    ledger_id: LedgerId
    txn_id: int


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """Asks for total and free disk space, in bytes (version 3)."""

    txn_id: int
    capacity: bool
    free: bool


@dataclass(frozen=True, slots=True)
class StartTls:
    """Asks for TLS: the handshake follows the response (version 3)."""

    txn_id: int


@dataclass(frozen=True, slots=True)
class Auth:
    """One step of the authentication."""

    plugin: str
    payload: bytes
    txn_id: int | None = None


@dataclass(frozen=True, slots=True)
class Unserved:
    """A request of an unknown operation or version; the only response is its refusal."""

    operation: int
    txn_id: int
    wrong_version: bool = False


Request: TypeAlias = (
    AddRun
    | Read
    | BatchRead
    | WriteLac
    | ReadLac
    | ForceLedger
    | ListEntries
    | BookieInfo
    | StartTls
    | Auth
    | Unserved
)

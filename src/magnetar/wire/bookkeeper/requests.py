"""What ledger clients ask of bookies, in the same words for both versions of the protocol.

`txn_id` is a request's number in version 3, chosen by the client and given back in the response. Version 2
has none: there `txn_id` is None, and ledger, entry and operation tell which request an answer belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

LAST_ENTRY = -1
"""Entry id of a read that asks for the last entry the bookie holds; the answer echoes it."""


class AddRun:
    """Adds to one ledger that follow each other on a connection and differ in entry and number only."""

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

    ledger_id: int
    master_key: bytes
    recovery: bool
    """A recovering or repairing client writes: allowed although the ledger is fenced."""
    high_priority: bool
    deferred_sync: bool
    """May be answered before it is durable."""
    entry_ids: list[int]
    entries: list[bytes]
    """Whole entries: head, digest, payload."""
    txn_ids: list[int] | None
    size_bytes: int
    """Bytes of all entries."""

    def __init__(
        self,
        ledger_id: int,
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
    """One entry, or the last one; may fence the ledger, or wait for it to grow."""

    ledger_id: int
    entry_id: int
    """`LAST_ENTRY` or >= 0."""
    txn_id: int | None = None
    fence: bool = False
    """Close the ledger to its writer first; needs `master_key`."""
    master_key: bytes | None = None
    high_priority: bool = False
    previous_lac: int | None = None
    """Wait until the last add confirmed is beyond this (version 3)."""
    timeout_ms: int | None = None
    """How long to wait; None does not wait."""
    piggyback: bool = False
    """Answer with entry `previous_lac` + 1 when the wait ends well."""


@dataclass(frozen=True, slots=True)
class BatchRead:
    """Consecutive entries in one answer (version 2)."""

    ledger_id: int
    first_entry: int
    request_id: int
    count_max: int
    """<= 0 is as many as fit."""
    bytes_max: int
    """Of the answer."""
    fence: bool = False
    master_key: bytes | None = None


@dataclass(frozen=True, slots=True)
class WriteLac:
    """Keep this last add confirmed (version 3)."""

    ledger_id: int
    lac: int
    master_key: bytes
    blob: bytes
    """The same, sealed: `Digester.seal_lac`."""
    txn_id: int


@dataclass(frozen=True, slots=True)
class ReadLac:
    """The last add confirmed that was kept, and the last entry (version 3)."""

    ledger_id: int
    txn_id: int


@dataclass(frozen=True, slots=True)
class ForceLedger:
    """Answer when everything that was added before is durable (version 3)."""

    ledger_id: int
    txn_id: int


@dataclass(frozen=True, slots=True)
class ListEntries:
    """Which entries the bookie holds (version 3)."""

    ledger_id: int
    txn_id: int


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """How large the disks are, and what is free (version 3)."""

    txn_id: int
    capacity: bool
    free: bool


@dataclass(frozen=True, slots=True)
class StartTls:
    """What follows the answer is a TLS handshake (version 3)."""

    txn_id: int


@dataclass(frozen=True, slots=True)
class Auth:
    """A step of the authentication."""

    plugin: str
    payload: bytes
    txn_id: int | None = None


@dataclass(frozen=True, slots=True)
class Unserved:
    """A request that can be answered with its refusal only: of an unknown operation or version."""

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

"""What can be chosen for a ledger client and its ledgers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.ledger.client.health import QuarantineOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.wire.bookkeeper.digests import DigestType
from magnetar.wire.bookkeeper.packets import PACKET_BYTES_MAX

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """How a new ledger is kept."""

    layout: QuorumLayout
    digest: DigestType = DigestType.CRC32C
    password: bytes = b""
    delay_ensemble_change: bool = False
    """Replace failed bookies only when the others are not enough any more, or when one is read-only."""
    acknowledged_within_s: float = 0.0
    """A writer ends when entries are not acknowledged within so long, whatever is tried. 0: it waits."""
    explicit_lac_s: float = 0.0
    """Tell bookies how far the ledger is confirmed when no entry did for so long. 0: never. Version 3."""
    deferred_sync: bool = False
    """Bookies acknowledge before entries are durable; `force` makes them so and confirms them. A bookie that
    fails ends the writer. Version 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Times, sizes and the version of the protocol."""

    use_v2: bool = True
    """Version 2 costs less and has batch reads; version 3 has explicit LACs and deferred sync."""
    channels: int = 2
    """Connections to one bookie for ordinary requests; all of a ledger go over one. Recovery has its own."""
    connect_timeout_s: float = 5.0
    answer_timeout_s: float = 5.0
    """How long a bookie may take before it is replaced, or another one is read from."""
    backoff_first_s: float = 0.1
    backoff_max_s: float = 10.0
    """Between two attempts to connect; doubles from first to last. Requests meanwhile fail at once."""
    replacement_wait_s: float = 5.0
    """How long a writer waits for somebody to take a failed bookie's place, which may be that bookie."""
    call_back_s: float = 5.0
    """After so long a member that nobody could replace, and that was done without, is tried again."""
    speculative_read_s: float = 0.5
    """After so long without any answer the next copy is asked as well. 0: never."""
    reads_at_once: int = 64
    """Entries that one read of a range asks for at a time."""
    packet_bytes_max: int = PACKET_BYTES_MAX
    tls: ssl.SSLContext | None = None
    """Connections begin with START_TLS and go on under this; None: they stay in clear."""
    user: tuple[str, str] | None = field(default=None, repr=False)
    """Name and password that are proven to bookies by the hand-shake of SASL; None: nothing is."""
    new_ids_asked: bool = False
    """Whether the bookies of a new ledger are asked first if they hold anything under its id."""
    quarantine: QuarantineOptions = field(default_factory=QuarantineOptions)

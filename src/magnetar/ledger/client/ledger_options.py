"""Options of a ledger client and of its ledgers."""

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
    """How a new ledger is replicated."""

    layout: QuorumLayout
    digest: DigestType = DigestType.CRC32C
    password: bytes = b""
    delay_ensemble_change: bool = False
    """Replace failed bookies only when the others no longer suffice, or when one is read-only."""
    acknowledged_within_s: float = 0.0
    """The writer fails when entries are not acknowledged within this many seconds. 0: it waits for ever."""
    explicit_lac_s: float = 0.0
    """Tell bookies the last add confirmed when no entry did for this many seconds. 0: never. Version 3."""
    deferred_sync: bool = False
    """Bookies acknowledge before entries are durable; `force` makes them durable and confirms them. A bookie
    that fails ends the writer. Version 3."""


@dataclass(slots=True)
class LedgerUser:
    """Credentials for the SASL handshake with bookies. Each new connection shows what stands here then."""

    name: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerClientOptions:
    """Times, sizes and the version of the protocol."""

    use_v2: bool = True
    """Version 2 costs less and has batch reads; version 3 has explicit last adds confirmed and deferred
    sync."""
    channels: int = 2
    """Connections to one bookie for ordinary requests; each ledger uses one of them. Recovery has its own."""
    connect_timeout_s: float = 5.0
    answer_timeout_s: float = 5.0
    """Seconds until a bookie without an answer is replaced, or another one is read from."""
    backoff_first_s: float = 0.1
    backoff_max_s: float = 10.0
    """Longest pause in seconds between two attempts to connect; doubles from first to last. Requests
    meanwhile fail at once."""
    replacement_wait_s: float = 5.0
    """Seconds that a writer waits for a replacement of a failed bookie, which may be that bookie."""
    call_back_s: float = 5.0
    """Seconds after which a failed member without a replacement, which is not needed, is tried again."""
    speculative_read_s: float = 0.5
    """Seconds without an answer after which the next copy is requested as well. 0: never."""
    reads_at_once: int = 64
    """Concurrent entry reads of one read of a range."""
    packet_bytes_max: int = PACKET_BYTES_MAX
    tls: ssl.SSLContext | None = None
    """Connections begin with START_TLS and continue under this context; None: in clear."""
    user: LedgerUser | None = None
    """None: no authentication."""
    new_ids_asked: bool = False
    """Whether the bookies of a new ledger are first asked if they hold anything under its id."""
    quarantine: QuarantineOptions = field(default_factory=QuarantineOptions)

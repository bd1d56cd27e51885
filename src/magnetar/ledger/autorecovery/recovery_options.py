"""Options of auto-recovery."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.metadata.keys import BOOKIE_RACKS


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOptions:
    """Times and limits of one node."""

    node_id: str
    """The node's name in votes and locks."""
    lost_bookie_delay_s: int = 0
    """Seconds to wait for a single lost bookie, unless the cluster has another value."""
    open_ledger_grace_s: float = 30.0
    """Seconds that the writer of a ledger has to replace a lost bookie before the ledger is closed for it."""
    check_bookies_s: float = 86_400.0
    """Seconds between two searches for lost bookies without an event."""
    check_all_s: float = 604_800.0
    """Seconds between two checks of all ledgers; 0: never."""
    check_share: float = 0.0
    """Share (0..1) of a bookie's entries that a check reads; it always reads the first and the last one."""
    check_placement_s: float = 0.0
    """Seconds between two checks of all ledgers' racks; 0: never, and workers do not move copies for
    racks."""
    racks_min: int = 2
    """Racks over which the copies of an entry should be spread, where it has that many copies."""
    racks_path: str = BOOKIE_RACKS
    """The metadata node with the bookies' racks, in Pulsar's format."""
    check_replicas_s: float = 0.0
    """Seconds between two checks of every entry on every bookie, by the bookies' lists; 0: never."""
    bytes_per_s: float | None = None
    """Bytes of payload copied per second at most; None: no limit."""
    retry_first_s: float = 1.0
    retry_max_s: float = 300.0
    """Longest pause in seconds before a failed repair of a ledger is repeated; doubles from first to last."""

"""What can be chosen for auto-recovery."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.metadata.keys import BOOKIE_RACKS


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOptions:
    """Times and limits of one node."""

    node_id: str
    """Name in votes and locks."""
    lost_bookie_delay_s: int = 0
    """How long a single lost bookie is waited for, where the cluster has no other value yet."""
    open_ledger_grace_s: float = 30.0
    """How long the writer of a ledger has to replace a lost bookie before the ledger is closed for it."""
    check_bookies_s: float = 86_400.0
    """Between two looks for lost bookies without a reason."""
    check_all_s: float = 604_800.0
    """Between two checks of all ledgers; 0: never."""
    check_share: float = 0.0
    """Share (0..1) of a bookie's entries that a check reads; the first and the last one always."""
    check_placement_s: float = 0.0
    """Between two checks of all ledgers' racks; 0: never, and workers do not move copies for racks."""
    racks_min: int = 2
    """Racks in which the copies of an entry are to stand, where it has so many copies."""
    racks_path: str = BOOKIE_RACKS
    """The node that says where bookies stand, in the form of Pulsar's."""
    check_replicas_s: float = 0.0
    """Between two checks of every entry on every bookie, by the bookies' lists; 0: never."""
    bytes_per_s: float | None = None
    """Payload copied at most; None: as fast as it goes."""
    retry_first_s: float = 1.0
    retry_max_s: float = 300.0
    """Pause before a ledger that could not be repaired is tried again; doubles from first to last."""

"""Which ledgers are to be copied, and when the bookies' copy may go. Pure.

Source: Pulsar's offload policies (names, units, what a threshold counts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from magnetar.base.ids import Position
from magnetar.tiered.api import SealedLedger

NEVER: Final = -1
"""A threshold that nothing reaches; a lag that never ends."""

POLICIES: Final = "offload_policies"
"""Key of the offload policies in a topic's document, and in its namespace's."""
THRESHOLD_OF_NAMESPACE: Final = "offload_threshold"
THRESHOLD_S_OF_NAMESPACE: Final = "offload_threshold_in_seconds"
LAG_OF_NAMESPACE: Final = "offload_deletion_lag_ms"
"""Keys that stand beside it in a namespace's document; the offload policies come first."""

THRESHOLD: Final = "managedLedgerOffloadThresholdInBytes"
THRESHOLD_S: Final = "managedLedgerOffloadThresholdInSeconds"
LAG: Final = "managedLedgerOffloadDeletionLagInMillis"
"""Names in the offload policies."""


DRIVER: Final = "managedLedgerOffloadDriver"
DRIVERS: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": ("s3",),
    "aws-s3": ("s3",),
    "google-cloud-storage": ("gs",),
    "azureblob": ("az",),
    "filesystem": ("file", "hdfs"),
    "aliyun-oss": (),
    "magnetar-parquet": ("file", "hdfs", "s3", "gs", "az", "memory"),
}
"""What each of Pulsar's drivers, in small letters, is in a URL."""
BUCKETS: Final = (
    "managedLedgerOffloadBucket",
    "s3ManagedLedgerOffloadBucket",
    "gcsManagedLedgerOffloadBucket",
)
_BUCKET_SCHEMES: Final = ("s3", "gs", "az")


def other_store(document: Mapping[str, Any], url: str) -> str:
    """Where a policy wants ledgers to go, when that is not the broker's `url`; else "".

    Such a policy is kept and copies nothing: a copy in another place than its owner named would be found by
    nobody, or by those who must not.
    """
    parts = urlsplit(url)
    driver = document.get(DRIVER)
    if driver and parts.scheme not in DRIVERS.get(str(driver).lower(), ()):
        return f"driver {driver}"
    for name in BUCKETS:
        if parts.scheme in _BUCKET_SCHEMES and (document.get(name) or parts.netloc) != parts.netloc:
            return f"bucket {document[name]}"
    return ""


@dataclass(frozen=True, slots=True)
class OffloadPolicy:
    """What holds for one topic."""

    threshold_bytes: int = NEVER
    """Bytes of the newest sealed ledgers that stay without a copy; beyond them older ones are copied."""
    threshold_s: int = NEVER
    """Age, by the last entry, at which a sealed ledger is copied. Seconds."""
    deletion_lag_ms: int = 4 * 3_600_000
    """How long the bookies keep a ledger after its copy was complete."""

    def under(self, own: Mapping[str, Any], namespace: Mapping[str, Any], url: str = "") -> OffloadPolicy:
        """This one as default, below what a topic's and its namespace's documents say. Where the narrower
        of them names another store than `url`, nothing is copied."""
        levels = (own.get(POLICIES) or {}, namespace.get(POLICIES) or {})
        if url and other_store(levels[0] or levels[1], url):
            return OffloadPolicy(NEVER, NEVER, NEVER)
        beside = {
            THRESHOLD: namespace.get(THRESHOLD_OF_NAMESPACE),
            THRESHOLD_S: namespace.get(THRESHOLD_S_OF_NAMESPACE),
            LAG: namespace.get(LAG_OF_NAMESPACE),
        }

        def value(name: str, default: int) -> int:
            for level in (*levels, beside):
                if (found := level.get(name)) is not None:
                    return int(found)
            return default

        return replace(
            self,
            threshold_bytes=value(THRESHOLD, self.threshold_bytes),
            threshold_s=value(THRESHOLD_S, self.threshold_s),
            deletion_lag_ms=value(LAG, self.deletion_lag_ms),
        )

    @property
    def automatic(self) -> bool:
        """Whether anything is copied without being asked for."""
        return self.threshold_bytes >= 0 or self.threshold_s >= 0


def is_copied(ledger: SealedLedger) -> bool:
    """Whether there is a complete copy."""
    return ledger.offload is not None and ledger.offload.complete


def due(ledgers: Sequence[SealedLedger], policy: OffloadPolicy, now_ms: int) -> list[SealedLedger]:
    """The ledgers that the thresholds want copied, oldest first. `ledgers` are all sealed ones, in order."""
    found = []
    newer_bytes = 0
    for ledger in reversed(ledgers):
        newer_bytes += ledger.size_bytes
        if is_copied(ledger):
            continue
        too_much = 0 <= policy.threshold_bytes < newer_bytes
        too_old = 0 <= policy.threshold_s * 1000 <= now_ms - ledger.timestamp_ms
        if too_much or too_old:
            found.append(ledger)
    return found[::-1]


def before(ledgers: Sequence[SealedLedger], position: Position) -> list[SealedLedger]:
    """Ledgers without a copy that end before `position`, oldest first: what is copied on demand."""
    return [ledger for ledger in ledgers if ledger.ledger_id < position.ledger_id and not is_copied(ledger)]


def local_copies_that_may_go(
    ledgers: Sequence[SealedLedger], policy: OffloadPolicy, now_ms: int
) -> list[SealedLedger]:
    """Ledgers whose copy has been complete for long enough, oldest first."""
    if policy.deletion_lag_ms < 0:
        return []
    return [
        ledger
        for ledger in ledgers
        if (context := ledger.offload) is not None
        and context.complete
        and not context.local_deleted
        and not context.foreign
        and now_ms - context.timestamp_ms >= policy.deletion_lag_ms
    ]

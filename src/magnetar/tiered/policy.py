"""Decides which ledgers are copied, and when they may be deleted from the bookies. Pure.

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
"""Value of a threshold that is never reached, and of a lag that never ends."""

POLICIES: Final = "offload_policies"
"""Key of the offload policies in a topic's document, and in its namespace's."""
THRESHOLD_OF_NAMESPACE: Final = "offload_threshold"
THRESHOLD_S_OF_NAMESPACE: Final = "offload_threshold_in_seconds"
LAG_OF_NAMESPACE: Final = "offload_deletion_lag_ms"
"""Keys of a namespace's document that count when its offload policies do not set the value."""

MAX_AGE: Final = "offload_max_age_in_seconds"
"""Key of the maximum age in the documents of a namespace and a topic; Pulsar does not have it."""
MAX_AGE_LEAST_S: Final = 60

THRESHOLD: Final = "managedLedgerOffloadThresholdInBytes"
THRESHOLD_S: Final = "managedLedgerOffloadThresholdInSeconds"
LAG: Final = "managedLedgerOffloadDeletionLagInMillis"
"""Names of fields of the offload policies."""


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
"""URL schemes of each of Pulsar's drivers; the keys are in small letters."""
BUCKETS: Final = (
    "managedLedgerOffloadBucket",
    "s3ManagedLedgerOffloadBucket",
    "gcsManagedLedgerOffloadBucket",
)
_BUCKET_SCHEMES: Final = ("s3", "gs", "az")


def other_store(document: Mapping[str, object], url: str) -> str:
    """The store of a policy when it is not the broker's `url`; else "".

    Such a policy is stored, and nothing is copied: a copy in another store than the one that the policy names
    would not be found, or would be read by users without access to that store.
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
    """The offload policy in force for one topic."""

    threshold_bytes: int = NEVER
    """Bytes of the newest sealed ledgers that are not copied; older ledgers are. Default NEVER."""
    threshold_s: int = NEVER
    """Seconds: age of the last entry at which a sealed ledger is copied. Default NEVER."""
    deletion_lag_ms: int = 4 * 3_600_000
    """Milliseconds that the bookies keep a ledger after its copy was complete. Default 4 hours."""
    max_age_s: int = 0
    """Seconds: age of a message at which its ledger is sealed and copied, whatever the thresholds are. 0, the
    default: no such age."""

    def under(self, own: Mapping[str, Any], namespace: Mapping[str, Any], url: str = "") -> OffloadPolicy:
        """The policy of a topic: the documents of topic and namespace, in this order, override this one.
        Nothing is copied when the first of them that names a store names another one than `url`."""
        levels = (own.get(POLICIES) or {}, namespace.get(POLICIES) or {})
        if url and other_store(levels[0] or levels[1], url):
            return NO_POLICY
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
            max_age_s=int(own.get(MAX_AGE, namespace.get(MAX_AGE, self.max_age_s))),
        )

    @property
    def automatic(self) -> bool:
        """Whether the policy copies ledgers without a request."""
        return self.threshold_bytes >= 0 or self.threshold_s >= 0 or self.max_age_s > 0


NO_POLICY: Final = OffloadPolicy(NEVER, NEVER, NEVER)
"""Copies no ledger, and deletes none from the bookies."""


def is_max_age(seconds: int) -> bool:
    """Whether the value is allowed as a maximum age. It has a lower bound, because each period of that length
    costs a ledger, a file and some changes of the stored list."""
    return seconds == 0 or seconds >= MAX_AGE_LEAST_S


def is_copied(ledger: SealedLedger) -> bool:
    """Whether the ledger has a complete copy."""
    return ledger.offload is not None and ledger.offload.complete


def due(ledgers: Sequence[SealedLedger], policy: OffloadPolicy, now_ms: int) -> list[SealedLedger]:
    """The ledgers to copy under the policy, oldest first. `ledgers`: all sealed ledgers, in order.

    With a maximum age these are all: a sealed ledger does not grow, so waiting has no use.
    """
    found = []
    newer_bytes = 0
    for ledger in reversed(ledgers):
        newer_bytes += ledger.size_bytes
        if is_copied(ledger) or ledger.held:
            continue
        too_much = 0 <= policy.threshold_bytes < newer_bytes
        too_old = 0 <= policy.threshold_s * 1000 <= now_ms - ledger.timestamp_ms
        if too_much or too_old or policy.max_age_s > 0:
            found.append(ledger)
    return found[::-1]


def has_work(ledgers: Sequence[SealedLedger], policy: OffloadPolicy, now_ms: int) -> bool:
    """Whether the policy requires work on the log now."""
    if policy.automatic and due(ledgers, policy, now_ms):
        return True
    return bool(local_copies_that_may_go(ledgers, policy, now_ms))


def before(ledgers: Sequence[SealedLedger], position: Position) -> list[SealedLedger]:
    """The ledgers to copy on a request up to `position`: those without a copy that end before it, oldest
    first."""
    wanted = [ledger for ledger in ledgers if ledger.ledger_id < position.ledger_id]
    return [ledger for ledger in wanted if not (is_copied(ledger) or ledger.held)]


def local_copies_that_may_go(
    ledgers: Sequence[SealedLedger], policy: OffloadPolicy, now_ms: int
) -> list[SealedLedger]:
    """Ledgers that may be deleted from the bookies, because their copy has been complete for the deletion
    lag; oldest first."""
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

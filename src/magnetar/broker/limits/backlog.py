"""Backlog quotas: how far behind the slowest subscription may be, and what happens beyond that (pure).

Source: Pulsar's backlog quotas. A quota of kind `destination_storage` is in bytes, one of kind `message_age`
in seconds. Eviction reduces the backlog to nine tenths of the allowed bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from magnetar.broker.policies.policy_shapes import Document

KEEP_TENTHS: Final = 9
"""Part of the quota that stays filled after an eviction (Pulsar's factor)."""


class QuotaKind(StrEnum):
    """What a quota measures, by its name in Pulsar's JSON."""

    SIZE = "destination_storage"
    AGE = "message_age"


class QuotaPolicy(StrEnum):
    """What happens beyond a quota, by its name in Pulsar's JSON."""

    HOLD = "producer_request_hold"
    """Producers wait until the backlog is below its quota."""
    REFUSE = "producer_exception"
    """Producers get an error."""
    EVICT = "consumer_backlog_eviction"
    """The slowest subscriptions lose their oldest entries."""


@dataclass(frozen=True, slots=True)
class BacklogQuota:
    """One quota in force."""

    kind: QuotaKind
    limit: int
    """Bytes or seconds; see `limits`."""
    policy: QuotaPolicy

    @property
    def limits(self) -> bool:
        """Whether there is a limit: as in Pulsar, bytes below 0 and seconds below 1 mean none."""
        return self.limit >= (0 if self.kind is QuotaKind.SIZE else 1)

    def exceeded(self, *, size_bytes: int, age_s: int) -> bool:
        """Whether a backlog of this many bytes, with an oldest entry of this age, exceeds the quota."""
        if not self.limits:
            return False
        return (size_bytes >= self.limit) if self.kind is QuotaKind.SIZE else (age_s > self.limit)


def fits_retention(quota: Document, retention: Document | None) -> bool:
    """Whether a quota's document is below a retention's, as Pulsar demands when either is set: messages kept
    after their acknowledgement must include unacknowledged ones. No limit counts as below."""
    kept = retention or {}
    mib, minutes = int(kept.get("retentionSizeInMB") or 0), int(kept.get("retentionTimeInMinutes") or 0)
    size_bytes = int(quota.get("limitSize", quota.get("limit", -1)))
    if mib > 0 and size_bytes >= mib << 20:
        return False
    return not (minutes > 0 and int(quota.get("limitTime", -1)) >= minutes * 60)


def entries_to_evict(entries: int, size_bytes: int, limit_bytes: int) -> int:
    """Entries of a backlog that must go so that at most KEEP_TENTHS of `limit_bytes` stay."""
    # In tenths of bytes: `fractions` would cost every start of a broker 4 ms.
    excess = 10 * size_bytes - KEEP_TENTHS * limit_bytes
    if excess <= 0 or not entries:
        return 0
    return min(entries, -(-entries * excess // (10 * size_bytes)))

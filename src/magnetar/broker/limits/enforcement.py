"""Periodic enforcement of limits: messages expire, backlogs over their quota shrink.

Not per message: it runs at an interval, on topics that have a TTL or a quota.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from magnetar.base.clock import Clock
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.broker.errors import BacklogQuotaHoldsError, BacklogQuotaRefusesError, RefusedError
from magnetar.broker.limits.backlog import BacklogQuota, QuotaKind, QuotaPolicy, entries_to_evict
from magnetar.broker.limits.limits import Limits
from magnetar.broker.limits.topic_limits import TopicLimits
from magnetar.broker.rounds import guarded
from magnetar.broker.topic.producer import Producer
from magnetar.managedlog.info import LedgerInfo
from magnetar.managedlog.log import ManagedLog
from magnetar.runtime.tasks import in_slices

_log = logging.getLogger("magnetar.broker.limits")

_TOPICS_PER_TURN: Final = 1_000
"""Topics, most of them without work, that are examined before other tasks run."""
_EVICTION_ROUNDS_MAX: Final = 100
"""Subscriptions that one round may shorten; the next round continues."""


class Bounded(Protocol):
    """The part of a subscription that is used here."""

    @property
    def name(self) -> str: ...
    @property
    def durable(self) -> bool: ...
    @property
    def mark_delete(self) -> Position: ...
    @property
    def backlog_entries(self) -> int: ...
    async def skip_to(self, position: Position) -> None: ...
    async def expire_to(self, position: Position) -> None: ...


class BoundedTopic(Protocol):
    """The part of a topic that is used here."""

    @property
    def log(self) -> ManagedLog: ...
    @property
    def producers(self) -> dict[str, Producer]: ...
    @property
    def bounded_subscriptions(self) -> Collection[Bounded]: ...
    def send_producer_away(self, producer: Producer) -> None: ...


class EnforcedTopic(BoundedTopic, Protocol):
    """A topic with its limits."""

    limits: TopicLimits
    name: TopicName


def slowest(topic: BoundedTopic) -> Bounded | None:
    """The durable subscription that is furthest behind; None when none has a backlog."""
    behind = [each for each in topic.bounded_subscriptions if each.durable and each.backlog_entries]
    return min(behind, key=lambda each: each.mark_delete, default=None)


def backlog_of(log: ManagedLog, after: Position) -> tuple[int, int]:
    """Entries after a position, and their bytes (by the log's average)."""
    entries = log.entries_between(after, log.last_position)
    return entries, entries * log.size_bytes // max(1, log.entry_count)


def nth_after(ledgers: Iterable[LedgerInfo], after: Position, count: int) -> Position | None:
    """The count-th stored entry after a position; None when there are fewer. Cost: one step a ledger."""
    for ledger in ledgers:
        if ledger.ledger_id < after.ledger_id:
            continue
        first = after.entry_id + 1 if ledger.ledger_id == after.ledger_id else 0
        available = ledger.entries - first
        if count <= available:
            return Position(ledger.ledger_id, first + count - 1)
        count -= max(0, available)
    return None


async def exceeded_quota(topic: BoundedTopic, limits: Limits, now_ms: int) -> BacklogQuota | None:
    """The first quota that the slowest subscription's backlog exceeds."""
    if not limits.quotas or (behind := slowest(topic)) is None:
        return None
    log, after = topic.log, behind.mark_delete
    size_bytes = backlog_of(log, after)[1]
    for quota in limits.quotas:
        age_s = 0
        if quota.kind is QuotaKind.AGE:
            runs = await log.reading.read_intact(log.next_position(after), 1, 1)
            age_s = max(0, now_ms - log.believed_ms(runs[0])) // 1000 if runs else 0
        if quota.exceeded(size_bytes=size_bytes, age_s=age_s):
            return quota
    return None


async def check_quotas(topic: BoundedTopic, limits: Limits, now_ms: int) -> None:
    """Raises the error of a new producer on a topic whose backlog exceeds a quota."""
    quota = await exceeded_quota(topic, limits, now_ms)
    if quota is not None and quota.policy is not QuotaPolicy.EVICT:
        raise _refusal(quota)


def _refusal(quota: BacklogQuota) -> RefusedError:
    unit = "bytes" if quota.kind is QuotaKind.SIZE else "seconds"
    text = f"the backlog of the topic exceeds its quota of {quota.limit} {unit}"
    if quota.policy is QuotaPolicy.HOLD:
        return BacklogQuotaHoldsError(text)
    return BacklogQuotaRefusesError(text)


async def enforce(topic: BoundedTopic, limits: Limits, now_ms: int) -> None:
    """One round on one topic. Raises MagnetarError when storage fails."""
    if limits.ttl_s:
        await _expire(topic, now_ms - limits.ttl_s * 1000)
    for _ in range(_EVICTION_ROUNDS_MAX):
        quota = await exceeded_quota(topic, limits, now_ms)
        if quota is None:
            return
        if quota.policy is not QuotaPolicy.EVICT:
            # Their clients come back and are told why they are refused: that is what they understand.
            _log.warning("%s; its producers are disconnected", _refusal(quota))
            for producer in list(topic.producers.values()):
                topic.send_producer_away(producer)
            return
        if not await _evict(topic, quota, now_ms):
            return


async def enforce_all(topics: Iterable[EnforcedTopic], clock: Clock) -> None:
    """One round on each of these topics; what fails is tried again in the next one."""
    async for topic in in_slices(topics, _TOPICS_PER_TURN):
        if topic.limits.works_alone:
            await guarded(
                enforce(topic, topic.limits.limits, clock.settled_ms()), f"{topic.name}: keeping its limits"
            )


async def _expire(topic: BoundedTopic, kept_from_ms: int) -> None:
    log = topic.log
    upto: Position | None = None
    for subscription in list(topic.bounded_subscriptions):
        if subscription.durable and subscription.backlog_entries:
            if upto is None:
                upto = log.previous_position(await log.position_of_time(kept_from_ms))
            if subscription not in topic.bounded_subscriptions:
                # It was deleted while another one was written, or the time was looked up. Its cursor refuses
                # every write, and the rest of the topic's subscriptions would wait for the next round.
                continue
            await subscription.expire_to(upto)


async def _evict(topic: BoundedTopic, quota: BacklogQuota, now_ms: int) -> bool:
    """Removes the excess from the slowest subscription; returns whether anything was removed."""
    behind = slowest(topic)
    if behind is None:
        return False
    log, after = topic.log, behind.mark_delete
    if quota.kind is QuotaKind.AGE:
        first_kept = await log.position_of_time(now_ms - quota.limit * 1000)
        target: Position | None = log.previous_position(first_kept)
    else:
        entries, size_bytes = backlog_of(log, after)
        count = entries_to_evict(entries, size_bytes, quota.limit)
        target = nth_after(log.info().ledgers, after, count)
    if target is None or target <= after:
        return False
    await behind.skip_to(target)
    if behind.mark_delete <= after:
        # Open transactions hold the rest: it may still be committed.
        return False
    _log.warning("subscription %s loses its entries up to %s: backlog quota", behind.name, behind.mark_delete)
    return True

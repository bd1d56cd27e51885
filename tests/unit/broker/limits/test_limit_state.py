"""Limits as pure state: buckets, quotas, what is in force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.ids import Position
from magnetar.broker.dispatch.unacked import UnackedLimit
from magnetar.broker.errors import NotAllowedError
from magnetar.broker.limits.backlog import BacklogQuota, QuotaKind, QuotaPolicy, entries_to_evict
from magnetar.broker.limits.enforcement import nth_after
from magnetar.broker.limits.limits import QUOTAS_OF_NAMESPACE, Limits, effective
from magnetar.broker.limits.subscribing import SubscribeLimiter
from magnetar.broker.limits.token_bucket import Rate, RateLimiter, TokenBucket
from magnetar.managedlog.info import LedgerInfo


@given(
    tokens=st.integers(1, 10_000),
    period_ms=st.integers(1, 60_000),
    steps=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 20_000)), max_size=30),
)
def test_a_bucket_gives_its_rate_and_one_period_in_advance(
    tokens: int, period_ms: int, steps: list[tuple[int, int]]
) -> None:
    bucket, now_ms, given_out = TokenBucket(tokens, period_ms, 0), 0, 0
    for passed_ms, wanted in steps:
        now_ms += passed_ms
        took = max(0, min(wanted, bucket.available(now_ms)))
        bucket.take(took, now_ms)
        given_out += took
        assert given_out * period_ms <= tokens * (now_ms + period_ms)


@given(tokens=st.integers(1, 10_000), period_ms=st.integers(1, 60_000), debt=st.integers(0, 100_000))
def test_a_debt_ends_when_it_says_and_not_before(tokens: int, period_ms: int, debt: int) -> None:
    bucket = TokenBucket(tokens, period_ms, 0)
    bucket.take(tokens + debt, 0)
    wait_ms = bucket.wait_ms(0)
    assert wait_ms > 0
    assert bucket.available(wait_ms - 1) <= 0
    assert bucket.available(wait_ms) >= 1


def test_a_clock_that_is_set_back_takes_nothing() -> None:
    bucket = TokenBucket(10, 1000, 5_000)
    bucket.take(4, 5_000)
    assert bucket.available(1_000) == 6
    assert bucket.available(1_100) == 7


def test_a_rate_of_bytes_alone_does_not_limit_messages() -> None:
    limiter = RateLimiter(Rate(0, 100), 0)
    assert limiter.room(500, 1 << 20, 0) == (500, 100)
    limiter.take(500, 150, 0)
    assert limiter.room(500, 1 << 20, 0) == (500, 0)
    assert limiter.wait_ms(0) == 510


def test_a_subscribe_limiter_forgets_who_has_rested() -> None:
    limiter = SubscribeLimiter(Rate(1, 0, 1000))
    for number in range(10_000):
        limiter.admit("a", f"c{number}", 1, 0)
    with pytest.raises(NotAllowedError):
        limiter.admit("a", "c5", 1, 10)
    limiter.admit("a", "new", 1, 1_000)
    assert len(limiter._buckets) == 10_000 - 100


def test_a_subscribe_limiter_that_is_full_of_restless_consumers_forgets_who_came_longest_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("magnetar.broker.limits.subscribing._KEPT_MAX", 3)
    limiter = SubscribeLimiter(Rate(1, 0, 1000))
    for name in ("c0", "c1", "c2"):
        limiter.admit("a", name, 1, 0)
    with pytest.raises(NotAllowedError):
        limiter.admit("a", "c0", 1, 10)
    limiter.admit("a", "new", 1, 10)
    assert [name for _, name, _ in limiter._buckets] == ["c2", "c0", "new"]


@given(entries=st.integers(1, 10**9), size_bytes=st.integers(1, 10**15), limit_bytes=st.integers(0, 10**12))
def test_an_eviction_leaves_nine_tenths_of_the_quota(entries: int, size_bytes: int, limit_bytes: int) -> None:
    gone = entries_to_evict(entries, size_bytes, limit_bytes)
    assert 0 <= gone <= entries
    left = (entries - gone) * size_bytes
    assert left * 10 <= limit_bytes * 9 * entries
    if gone:
        assert (left + size_bytes) * 10 > limit_bytes * 9 * entries


def test_a_quota_without_a_limit_is_never_exceeded() -> None:
    none = BacklogQuota(QuotaKind.SIZE, -1, QuotaPolicy.HOLD)
    assert not none.exceeded(size_bytes=1 << 60, age_s=1 << 40)
    age = BacklogQuota(QuotaKind.AGE, 10, QuotaPolicy.HOLD)
    assert not age.exceeded(size_bytes=1 << 60, age_s=10)
    assert age.exceeded(size_bytes=0, age_s=11)


@pytest.mark.parametrize("policy", list(QuotaPolicy))
def test_an_age_of_0_is_no_limit_and_0_bytes_are_one(policy: QuotaPolicy) -> None:
    """As Pulsar has it; its clients send 0 for an age that was not given."""
    age, size = ({"limitSize": bytes_, "limitTime": 0, "policy": policy} for bytes_ in (-1, 0))
    found = effective({}, {QUOTAS_OF_NAMESPACE: {QuotaKind.AGE: age, QuotaKind.SIZE: size}}, Limits(), "c")
    assert found.quotas == (BacklogQuota(QuotaKind.SIZE, 0, policy),)
    assert not BacklogQuota(QuotaKind.AGE, 0, policy).exceeded(size_bytes=1, age_s=1)
    assert found.quotas[0].exceeded(size_bytes=1, age_s=0)


def test_the_nth_entry_is_found_over_ledgers() -> None:
    ledgers = [LedgerInfo(each, entries, 0, 0, 0) for each, entries in ((3, 5), (4, 0), (7, 2))]
    assert nth_after(ledgers, Position(3, 1), 1) == Position(3, 2)
    assert nth_after(ledgers, Position(3, 1), 4) == Position(7, 0)
    assert nth_after(ledgers, Position(2, 9), 7) == Position(7, 1)
    assert nth_after(ledgers, Position(3, 1), 6) is None


def test_the_topic_wins_over_the_namespace_over_the_broker() -> None:
    defaults = Limits(producers_max=9, unacked_max_per_consumer=50)
    assert effective({}, {}, defaults, "c") == defaults
    namespace = {"max_producers_per_topic": 5, "topicDispatchRate": {"c": {"dispatchThrottlingRateInMsg": 3}}}
    found = effective({}, namespace, defaults, "c")
    assert (found.producers_max, found.dispatch_rate.messages) == (5, 3)
    assert effective({}, namespace, defaults, "other").dispatch_rate == Rate()
    found = effective({"maxProducerPerTopic": 0}, namespace, defaults, "c")
    assert found.producers_max == 0, "0 is said, and means without limit"


def test_a_subscription_blocks_at_its_limit_until_half_is_free() -> None:
    limit = UnackedLimit()
    limit.limit(10)
    limit.sent(10)
    assert limit.blocked
    limit.released(5)
    assert limit.blocked, "half is not below half"
    limit.released(1)
    assert not limit.blocked
    limit.sent(20)
    limit.limit(0)
    assert not limit.blocked

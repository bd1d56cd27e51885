"""How far subscriptions are behind, in messages, bytes and seconds."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar.base.entries import EntryRun
from magnetar.base.errors import LogError
from magnetar.base.ids import Position
from magnetar.broker.subscription.lag import NONE, REFRESH_MS, Lags
from magnetar.broker.subscription.subscription import Subscription
from support.admin_api import AdminApi, T, with_api


async def behind(api: AdminApi, *payloads: bytes) -> Subscription:
    """A subscription "s" of the topic "t" with these before it."""
    await api.done("PUT", f"{T}/t")
    await api.done("PUT", f"{T}/t/subscription/s", "earliest")
    await api.publish("t", *payloads)
    return (await api.topic("persistent://public/default/t")).subscriptions["s"]


def test_lag_shrinks_with_what_is_acknowledged() -> None:
    async def story(api: AdminApi) -> None:
        subscription = await behind(api, *([b"x" * 100] * 6))
        log = (await api.topic("persistent://public/default/t")).log
        lags = Lags(api.clock, api.broker.tasks.spawn)
        api.clock.advance(5_000)
        lag = lags.of(subscription, log)
        assert lag is not None
        assert (lag.messages, lag.seconds) == (6, 5.0)
        assert lag.bytes == log.size_bytes
        await subscription.skip_to(log.next_position(log.first_position))
        after = lags.of(subscription, log)
        assert after is not None
        assert (after.messages, after.bytes) == (4, log.size_bytes * 4 // 6)
        await subscription.skip_all()
        assert lags.of(subscription, log) == NONE

    with_api(story)


def test_messages_in_batches_count_each() -> None:
    async def story(api: AdminApi) -> None:
        subscription = await behind(api)
        log = (await api.topic("persistent://public/default/t")).log
        log.append([b"a" * 10, b"b" * 10], [7, 3])
        await api.publish("t", b"1")
        lag = Lags(api.clock, api.broker.tasks.spawn).of(subscription, log)
        assert lag is not None
        assert lag.messages == 11

    with_api(story)


class SlowLog:
    """A log whose oldest entries lie where a read must be waited for."""

    def __init__(self) -> None:
        self.next_index, self.size_bytes, self.entry_count = 100, 1_000, 10
        self.last_position = Position(1, 9)
        self.now: list[EntryRun] | None = None
        self.fails = False
        self.reads = 0

    def next_position(self, position: Position) -> Position:
        return Position(position.ledger_id, position.entry_id + 1)

    def believed_ms(self, run: EntryRun) -> int:
        return run.broker_time_ms

    def entries_between(self, after: Position, upto: Position) -> int:
        return upto.entry_id - after.entry_id

    def read_now(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun] | None:
        if self.fails:
            raise LogError("closed")
        return self.now

    async def read(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]:
        self.reads += 1
        return [EntryRun(1, position.entry_id, [b"e"], [10], position.entry_id * 10, 2_000)]


class Behind:
    """A subscription that is asked for its backlog only."""

    def __init__(self) -> None:
        self.mark_delete, self.backlog_entries = Position(1, -1), 10


class Clock:
    """Set by the test."""

    ms = 10_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> float:
        return self.ms


def test_what_must_be_waited_for_is_read_in_the_background() -> None:
    clock, log, subscription = Clock(), SlowLog(), Behind()
    started: list[Coroutine[Any, Any, None]] = []
    lags: Any = Lags(clock, started.append)  # type: ignore[arg-type]  # the fakes have what is asked for
    assert lags.of(subscription, log) is None
    assert lags.of(subscription, log) is None
    # Once, however often it is asked meanwhile.
    assert len(started) == 1
    with pytest.raises(StopIteration):
        started.pop().send(None)
    assert lags.of(subscription, log) == (100, 1_000, 8.0)
    # It moves on: what was known is shown until it is time to read again.
    subscription.mark_delete, subscription.backlog_entries = Position(1, 4), 5
    clock.ms += 1_000
    assert lags.of(subscription, log).seconds == 9.0
    assert started == []
    clock.ms += REFRESH_MS
    lags.of(subscription, log)
    with pytest.raises(StopIteration):
        started.pop().send(None)
    assert lags.of(subscription, log).messages == 50
    log.fails = True
    subscription.mark_delete = Position(1, 5)
    assert lags.of(subscription, log) is not None

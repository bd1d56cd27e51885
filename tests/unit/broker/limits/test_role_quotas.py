"""What a role may use over seconds: commands, and time of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.broker.limits import role_quotas
from magnetar.broker.limits.role_quotas import RoleQuotas
from magnetar.broker.limits.tenants import TenantLimits


def quotas(clock: ManualClock, commands: int = 0, percent: int = 0) -> RoleQuotas:
    return RoleQuotas(
        TenantLimits(commands_per_second_per_role=commands, loop_percent_per_role=percent), clock.monotonic_ms
    )


def test_a_role_has_so_many_commands_a_second() -> None:
    clock = ManualClock()
    found = quotas(clock, commands=100)
    assert found.count("a", 100) == 10
    assert found.count("b", 1) == 0
    clock.advance(10)
    assert found.count("a", 50) == 500
    clock.advance(10_000)
    assert found.count("a", 99) == 0


def test_a_role_has_so_much_time() -> None:
    clock = ManualClock()
    found = quotas(clock, percent=10)
    begun_ms = found.now_ms()
    clock.advance(150)
    # 100 ms were in store, and while it worked nothing could come on top.
    assert found.count("a", 1, begun_ms) == 501
    assert found.count("b", 1_000) == 0
    clock.advance(501)
    assert found.count("a", 1) == 0


def test_without_limits_nothing_is_counted() -> None:
    clock = ManualClock()
    found = quotas(clock)
    clock.advance(60_000)
    assert found.count("a", 1 << 40, 0.0) == 0
    assert not found.timed

    async def work() -> None: ...

    made = work()
    assert found.timing("a", made) is made
    made.close()


@pytest.mark.parametrize("used_ms", [12_000, 1 << 60])
def test_no_rest_is_longer_than_ten_seconds(used_ms: int) -> None:
    clock = ManualClock()
    found = quotas(clock, commands=7, percent=1)
    clock.advance(used_ms)
    rest_ms = found.count("a", used_ms, 0.0)
    assert 9_900 <= rest_ms <= 10_200
    clock.advance(rest_ms)
    assert found.count("a", 0) == 0


def test_roles_that_rest_are_remembered_among_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_quotas, "_OWNERS_KEPT", 10)
    found = quotas(ManualClock(), commands=5)
    found.count("flood", 100)
    for number in range(100):
        found.count(f"r{number}", 0)
    assert found.count("flood", 0) >= 10_000
    assert len(found._of_commands._buckets) <= 11


def in_loop(story: Callable[[ManualClock], Any]) -> Any:
    return asyncio.run(story(ManualClock()))


def test_work_counts_while_it_has_the_loop_and_not_while_it_waits() -> None:
    async def story(clock: ManualClock) -> None:
        found = quotas(clock, percent=50)
        gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def work() -> int:
            clock.advance(400)
            got = await gate
            clock.advance(300)
            return got

        task = asyncio.ensure_future(found.timing("a", work()))
        await asyncio.sleep(0)
        assert found.count("a", 0) == 0
        clock.advance(100_000)
        gate.set_result(5)
        assert await task == 5
        # Half a second's worth was there again when it went on.
        assert found.count("a", 0) == 0
        clock.advance(10_000)

        async def dear() -> None:
            clock.advance(700)

        await found.timing("a", dear())
        assert found.count("a", 0) == 401

    in_loop(story)


def test_errors_and_cancellation_go_through() -> None:
    async def story(clock: ManualClock) -> None:
        found = quotas(clock, percent=1)
        told: list[str] = []

        async def fails() -> None:
            await asyncio.sleep(0)
            raise KeyError("x")

        with pytest.raises(KeyError):
            await found.timing("a", fails())

        async def waits() -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told.append("cancelled")
                await asyncio.sleep(0)
                clock.advance(1_000)
                raise
            return "never"

        task = asyncio.ensure_future(found.timing("a", waits()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told == ["cancelled"]
        assert found.count("a", 0) > 10_000 - 200

        async def takes_it() -> str:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                return "went on"
            return "never"

        task = asyncio.ensure_future(found.timing("a", takes_it()))
        await asyncio.sleep(0)
        task.cancel()
        assert await task == "went on"

    in_loop(story)

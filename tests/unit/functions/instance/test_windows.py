"""Windows of messages and of time."""

from __future__ import annotations

from magnetar.functions.instance.plan import WindowPlan
from magnetar.functions.instance.windows import Fired, WindowBuffer


def fired(plan: WindowPlan, count: int) -> list[Fired[int]]:
    buffer: WindowBuffer[int] = WindowBuffer(plan, 0)
    return [found for number in range(count) if (found := buffer.add(number, 0)) is not None]


def test_windows_of_messages_do_not_overlap() -> None:
    assert fired(WindowPlan(length_count=3), 7) == [Fired([0, 1, 2], [0, 1, 2]), Fired([3, 4, 5], [3, 4, 5])]


def test_sliding_windows_of_messages_keep_what_the_next_one_has() -> None:
    found = fired(WindowPlan(length_count=4, slide_count=2), 6)
    assert [each.items for each in found] == [[0, 1], [0, 1, 2, 3], [2, 3, 4, 5]]
    assert [item for each in found for item in each.done] == [0, 1, 2, 3]


def test_windows_of_time_hold_what_came_in_them() -> None:
    buffer: WindowBuffer[str] = WindowBuffer(WindowPlan(length_ms=100), 0)
    buffer.add("a", 10)
    assert buffer.elapsed(99) is None
    assert buffer.elapsed(100) == Fired(["a"], ["a"])
    assert buffer.elapsed(200) is None
    assert buffer.next_ms == 300


def test_a_sliding_window_of_time_lets_go_of_what_is_too_old() -> None:
    buffer: WindowBuffer[str] = WindowBuffer(WindowPlan(length_ms=100, slide_ms=50), 0)
    buffer.add("a", 10)
    buffer.add("b", 60)
    assert buffer.elapsed(50) == Fired(["a", "b"], [])
    assert buffer.elapsed(100) == Fired(["a", "b"], ["a"])


def test_a_window_that_ended_without_messages_holds_none_that_comes_later() -> None:
    buffer: WindowBuffer[str] = WindowBuffer(WindowPlan(length_ms=1000), 0)
    assert buffer.add("a", 5_500) is None
    assert buffer.elapsed(5_500) is None, "the windows before it are over, and hold nothing"
    assert buffer.next_ms == 6_000
    assert buffer.elapsed(6_000) == Fired(["a"], ["a"])

"""When everything is collected."""

from __future__ import annotations

import asyncio
import gc

from magnetar.observability.metrics import Exposition
from magnetar.runtime.heap import Heap, Schedule


def test_nothing_is_due_while_nothing_ends_and_little_happens() -> None:
    schedule = Schedule()
    assert not schedule.due(999, 1_999)


def test_enough_ends_make_it_due_once() -> None:
    schedule = Schedule()
    assert schedule.due(1_000, 0)
    schedule.collected(1_000, 0, found=50_000)
    assert not schedule.due(1_999, 0)
    assert schedule.due(2_000, 0)


def test_searches_in_vain_become_rarer_up_to_a_limit_and_a_find_makes_them_frequent() -> None:
    schedule = Schedule()
    rounds, waits = 0, []
    for _ in range(7):
        waits.append(schedule.rounds_max)
        rounds += schedule.rounds_max
        assert schedule.due(0, rounds)
        schedule.collected(0, rounds, found=0)
    assert waits == [2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 64_000]
    schedule.collected(0, rounds, found=5_000)
    assert schedule.rounds_max == 2_000


def test_ends_that_leave_nothing_make_collections_rarer_up_to_a_limit() -> None:
    schedule = Schedule()
    ended, waits = 0, []
    for _ in range(7):
        waits.append(schedule.ended_max)
        ended += schedule.ended_max
        assert not schedule.due(ended - 1, 0)
        assert schedule.due(ended, 0)
        schedule.collected(ended, 0, found=0)
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 32_000]
    schedule.collected(ended, 0, found=5_000)
    assert schedule.ended_max == 1_000


def test_a_collection_after_ends_says_nothing_about_searches_in_vain() -> None:
    schedule = Schedule()
    schedule.collected(1_000, 10, found=0)
    assert schedule.rounds_max == 2_000


def test_a_large_heap_waits_until_it_is_small_or_nobody_is_there() -> None:
    schedule = Schedule()
    assert schedule.allowed(200_000)
    assert not schedule.allowed(201_000)
    schedule.took(1_000_000, 0.05, 0)
    assert schedule.allowed(400_000)
    assert not schedule.allowed(401_000)
    schedule.took(100, 1.0, 0)
    assert schedule.allowed(400_000), "so few say nothing"
    for _ in range(7):
        assert not schedule.allowed(3_000_000)
        schedule.looked(5, 7)
    assert schedule.allowed(3_000_000)
    schedule.looked(5, 8)
    assert not schedule.allowed(3_000_000), "somebody is there again"


def test_what_is_due_is_put_off_while_it_would_be_felt() -> None:
    thresholds = gc.get_threshold()
    heap = Heap(lambda: 1_000)

    def full() -> int:
        return int(gc.get_stats()[2]["collections"])

    try:
        heap.settle()
        held: list[list[int]] = [[] for _ in range(300_000)]
        before = full()
        asyncio.run(heap.collect_if_due())
        assert full() == before
        held.clear()
        asyncio.run(heap.collect_if_due())
        assert full() == before + 1
    finally:
        heap.close()
        gc.set_threshold(*thresholds)


def test_settled_heap_measures_collections_and_finds_cycles_when_enough_has_ended() -> None:
    thresholds = gc.get_threshold()
    ended = 0
    heap = Heap(lambda: ended)
    try:
        heap.settle()
        asyncio.run(heap.collect_if_due())
        ended = 1_000
        asyncio.run(heap.collect_if_due())
        assert 0 < heap.pause_s_max <= heap.pause_s
        out = Exposition()
        list(heap.collect_metrics(out))
        assert 'magnetar_gc_seconds_total{generation="2"}' in out.render()
    finally:
        heap.close()
        gc.set_threshold(*thresholds)
    seen = heap.pause_s
    gc.collect()
    assert heap.pause_s == seen


def test_a_heap_that_grows_and_grows_is_collected_though_it_is_felt() -> None:
    schedule = Schedule()
    schedule.took(1_000_000, 0.1, 900_000)
    assert not schedule.allowed(4_899_999)
    assert schedule.allowed(4_900_000)
    schedule.took(4_900_000, 0.5, 4_800_000)
    assert not schedule.allowed(8_799_999), "it was not garbage: the next one comes after as much again"
    assert schedule.allowed(8_800_000)

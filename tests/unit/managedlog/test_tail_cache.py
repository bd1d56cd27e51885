"""One budget, oldest first, shared runs."""

from __future__ import annotations

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.managedlog.log_reading import cut
from magnetar.managedlog.tail_cache import CacheBudget, TailCache


def run(ledger_id: int, first: int, count: int = 2, size: int = 5) -> EntryRun:
    return EntryRun(ledger_id, first, [b"x" * size] * count, None, 0, 0)


def cached(cache: TailCache, position: Position) -> list[tuple[int, int]]:
    return [(found.ledger_id, found.first_entry) for found, _ in cache.runs_from(position)]


def test_the_oldest_run_of_any_log_leaves_first() -> None:
    budget = CacheBudget(30)
    one, two = TailCache(budget), TailCache(budget)
    one.add(run(1, 0), 10)
    two.add(run(2, 0), 10)
    one.add(run(1, 2), 10)
    assert budget.bytes_used == 30
    two.add(run(2, 2), 10)
    assert one.first_position == Position(1, 2)
    two.add(run(2, 4), 10)
    assert two.first_position == Position(2, 2)
    assert budget.bytes_used == 30
    one.check()
    two.check()


def test_a_run_larger_than_the_budget_is_not_kept() -> None:
    budget = CacheBudget(9)
    cache = TailCache(budget)
    cache.add(run(1, 0), 10)
    assert (len(cache), budget.bytes_used, cache.first_position) == (0, 0, None)


def test_a_cleared_cache_gives_its_bytes_back_and_is_passed_over() -> None:
    budget = CacheBudget(40)
    gone, stays = TailCache(budget), TailCache(budget)
    for first in range(0, 4, 2):
        gone.add(run(1, first), 10)
    stays.add(run(2, 0), 10)
    gone.clear()
    gone.clear()
    gone.add(run(1, 4), 10)
    assert budget.bytes_used == 10
    for first in range(2, 20, 2):
        stays.add(run(2, first), 10)
    assert budget.bytes_used == 40
    stays.check()


def test_runs_from_finds_the_middle_of_a_run_and_the_gap_between_ledgers() -> None:
    cache = TailCache(CacheBudget(1000))
    for first in (0, 2, 4):
        cache.add(run(1, first), 10)
    cache.add(run(3, 0), 10)
    assert cached(cache, Position(1, 3)) == [(1, 2), (1, 4), (3, 0)]
    assert cached(cache, Position(1, 9)) == [(3, 0)]
    assert cached(cache, Position(3, 2)) == []


def test_eviction_keeps_working_over_many_runs() -> None:
    cache = TailCache(CacheBudget(50))
    for first in range(0, 1000, 2):
        cache.add(run(1, first), 10)
        cache.check()
    assert cached(cache, Position(1, 990)) == [(1, 990), (1, 992), (1, 994), (1, 996), (1, 998)]


def test_cut_gives_at_least_one_entry_and_respects_both_limits() -> None:
    runs = [(run(1, 0, 3), 15), (run(1, 3, 3), 15), (run(4, 0, 3), 15)]

    def at(start: Position, bytes_max: int, entries_max: int) -> list[tuple[int, int, int]]:
        found = cut(iter(runs), start, bytes_max, entries_max)
        return [(item.ledger_id, item.first_entry, len(item.entries)) for item in found]

    assert at(Position(1, 0), 1, 10) == [(1, 0, 1)]
    assert at(Position(1, 1), 12, 10) == [(1, 1, 2)]
    assert at(Position(1, 0), 100, 4) == [(1, 0, 3), (1, 3, 1)]
    assert at(Position(1, 0), 15, 9) == [(1, 0, 3)]
    assert at(Position(1, 2), 100, 100) == [(1, 2, 1), (1, 3, 3), (4, 0, 3)]
    assert cut(iter(runs), Position(1, 0), 100, 100)[0] is runs[0][0]

"""The number of reads that wait, by client and in all."""

from __future__ import annotations

import pytest

from magnetar.bookie.served import Wait, Waited
from magnetar.bookie.waiting import WaitingReads
from magnetar.wire.bookkeeper.requests import LAST_ENTRY, Read

POLL = Read(1, LAST_ENTRY, previous_lac=0)


def waiting(reads: WaitingReads, line: dict[Wait, None], *askers: str) -> list[Wait]:
    waits = [Wait(asker, POLL, 1) for asker in askers]
    for wait in waits:
        reads.begin(wait, line)
    return waits


def test_reads_that_wait_have_a_limit_by_client_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.bookie.waiting.OF_ONE_MAX", 2)
    monkeypatch.setattr("magnetar.bookie.waiting.OF_ALL_MAX", 3)
    reads = WaitingReads()
    line: dict[Wait, None] = {}
    first, _ = waiting(reads, line, "a", "a")
    assert not reads.has_place("a")
    assert reads.has_place("b")
    waiting(reads, line, "b")
    assert not reads.has_place("c")
    assert reads.over(first) == [Waited(first)]
    assert reads.has_place("a")
    assert len(line) == reads.total == 2


def test_a_read_ends_once() -> None:
    reads = WaitingReads()
    line: dict[Wait, None] = {}
    (wait,) = waiting(reads, line, "a")
    del line[wait]
    assert reads.end([wait]) == [Waited(wait)]
    assert reads.over(wait) == []
    assert reads.gone("a") == []
    assert reads.total == 0


def test_a_client_that_has_gone_leaves_no_reads() -> None:
    reads = WaitingReads()
    line: dict[Wait, None] = {}
    mine, other, too = waiting(reads, line, "a", "b", "a")
    assert reads.gone("a") == [mine, too]
    assert list(line) == [other]
    assert reads.total == 1
    assert reads.over(mine) == []


def test_the_client_with_most_gives_way_when_all_places_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen connections could keep every place, and polls of all others were refused."""
    monkeypatch.setattr("magnetar.bookie.waiting.OF_ONE_MAX", 3)
    monkeypatch.setattr("magnetar.bookie.waiting.OF_ALL_MAX", 4)
    reads = WaitingReads()
    line: dict[Wait, None] = {}
    assert reads.make_place("a") == []
    first, second, _, _ = waiting(reads, line, "a", "a", "a", "b")
    assert reads.make_place("a") is None
    assert reads.make_place("c") == [Waited(first)]
    waiting(reads, line, "c")
    assert reads.make_place("b") is None
    assert second in line
    assert reads.total == 4


def test_clients_with_one_read_each_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.bookie.waiting.OF_ALL_MAX", 2)
    reads = WaitingReads()
    waiting(reads, {}, "a", "b")
    assert reads.make_place("c") is None

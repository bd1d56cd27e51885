"""Survivors that are neighbours are appended together, with the index of their first message."""

from __future__ import annotations

from magnetar.base.entries import EntryRun
from magnetar.broker.compaction.grouping import SurvivorGroup

Appended = tuple[list[bytes], list[int] | None, int, int]


def grouped(run: EntryRun, offsets: list[int]) -> list[Appended]:
    found: list[Appended] = []
    group = SurvivorGroup(lambda *each: found.append(each))
    for offset in offsets:
        group.add(run, offset, b"s%d" % offset)
    group.end()
    group.end()
    return found


def test_neighbours_go_together_and_gaps_begin_a_group() -> None:
    run = EntryRun(4, 10, [b""] * 6, None, 100, 77)
    assert grouped(run, [0, 1, 4]) == [([b"s0", b"s1"], None, 100, 77), ([b"s4"], None, 104, 77)]


def test_messages_of_entries_that_were_left_out_keep_their_indexes() -> None:
    run = EntryRun(4, 10, [b""] * 4, [5, 2, 1, 9], 100, 77)
    assert grouped(run, [1, 3]) == [([b"s1"], [2], 105, 77), ([b"s3"], [9], 108, 77)]


def test_a_run_begins_a_group() -> None:
    found: list[Appended] = []
    group = SurvivorGroup(lambda *each: found.append(each))
    for ledger, base in ((4, 100), (5, 900)):
        group.add(EntryRun(ledger, 0, [b"", b""], None, base, ledger), 0, b"four")
        assert group.size_bytes == 4
    group.end()
    assert group.size_bytes == 0
    assert found == [([b"four"], None, 100, 4), ([b"four"], None, 900, 5)]


def test_nothing_is_appended_of_nothing() -> None:
    assert grouped(EntryRun(1, 0, [b""], None, 0, 0), []) == []

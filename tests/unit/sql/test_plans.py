"""A snapshot divided into files and the rest: each entry once, and nothing that a query cannot want."""

from __future__ import annotations

from dataclasses import replace

from magnetar.base.ids import EARLIEST, LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.sql.bounds import Bounds, NumberSpan
from magnetar.sql.plans import PartitionPlan, ReadCounts, plan_partition
from magnetar.tables.history_files import FileFacts
from magnetar.tables.ledgers import KnownLog, ListedLedger
from magnetar.tables.segment_traits import SegmentTraits
from magnetar.tables.stretches import HistoryFile

TOPIC = TopicName.parse("orders-partition-2")


def file(name: str, size: int = 100) -> HistoryFile:
    return HistoryFile("file:///store", name, 0, 9, size)


def log(*ledgers: tuple[int, HistoryFile | None]) -> KnownLog:
    """Ledgers of ten entries."""
    listed = tuple(
        ListedLedger(LedgerId(number), 10, 1000, None, () if each is None else (each,))
        for number, each in ledgers
    )
    return KnownLog(Position(listed[-1].ledger_id, 10), listed, True)


def facts(ledger_id: int, *, times: tuple[int, int] = (0, 10), has_keys: bool = True) -> FileFacts:
    traits = SegmentTraits(True, False, False, frozenset(((ledger_id, 0, 9),)))
    return FileFacts(traits, 10, times, (), None, has_keys)


KNOWN = {"a": facts(1), "b": facts(2, times=(20, 30), has_keys=False)}
LOG = log((1, file("a")), (2, file("b")), (3, None))


def known(each: HistoryFile, bounds: Bounds) -> FileFacts | None:
    found = KNOWN[each.name]
    return found if bounds.keys is not None else replace(found, has_keys=True)


def planned(bounds: Bounds, *, native: bool = True) -> tuple[PartitionPlan | None, ReadCounts]:
    counts = ReadCounts()
    plan = plan_partition(TOPIC, LOG, bounds, lambda *_: native, lambda each: known(each, bounds), counts)
    return plan, counts


def shown(plan: PartitionPlan | None) -> tuple[list[str], list[tuple[object, object]]]:
    assert plan is not None
    return [each.file.name for each in plan.files], [(each.start, each.end) for each in plan.stretches]


def test_files_and_the_tail() -> None:
    plan, counts = planned(Bounds())
    assert shown(plan) == (["a", "b"], [((3, 0), (3, 10))])
    assert (counts.files, counts.file_bytes, counts.file_rows, counts.skipped_files) == (2, 200, 20, 0)
    plan, _ = planned(Bounds(), native=False)
    assert shown(plan) == ([], [((1, 0), (1, 10)), ((2, 0), (2, 10)), ((3, 0), (3, 10))])


def test_times_skip_files() -> None:
    plan, counts = planned(Bounds(time_ms=NumberSpan(15, None)))
    assert shown(plan)[0] == ["b"]
    assert (counts.files, counts.skipped_files, counts.skipped_bytes) == (1, 1, 100)


def test_keys_skip_files() -> None:
    plan, counts = planned(Bounds(keys=frozenset((b"k",))))
    assert shown(plan)[0] == ["a"]
    assert counts.skipped_files == 1


def test_positions_skip_files_and_entries() -> None:
    plan, counts = planned(Bounds(ledger_id=NumberSpan(2, 3), entry_id=NumberSpan(4, 6)))
    assert plan is not None
    assert [(each.file.name, each.is_whole) for each in plan.files] == [("b", False)]
    assert [(each.start, each.end) for each in plan.stretches] == [((3, 4), (3, 7))]
    assert counts.skipped_files == 1
    plan, _ = planned(Bounds(ledger_id=NumberSpan(8, None)))
    assert plan is None


def test_another_partition() -> None:
    plan, counts = planned(Bounds(partition=NumberSpan(3, 3)))
    assert plan is None
    assert counts.skipped_partitions == 1


def test_a_file_of_another_machine_is_read_from_the_broker() -> None:
    plan = plan_partition(TOPIC, LOG, Bounds(), lambda *_: True, lambda _: None, ReadCounts())
    assert plan is not None
    assert [(each.start, each.file) for each in plan.stretches] == [
        ((1, 0), None),
        ((2, 0), None),
        ((3, 0), None),
    ]


def test_where_only_the_end_is_known() -> None:
    """Without an admin interface: the broker then sends what is there from the first entry on."""
    state = KnownLog.from_last(Position(LedgerId(5), 3))
    plan = plan_partition(TOPIC, state, Bounds(), lambda *_: True, lambda _: None, ReadCounts())
    assert shown(plan) == ([], [(tuple(EARLIEST), (5, 4))])


def test_each_ledger_of_the_tail_is_a_range() -> None:
    state = log((1, file("a")), (2, None), (3, None))
    plan = plan_partition(
        TOPIC,
        state,
        Bounds(ledger_id=NumberSpan(3, None)),
        lambda *_: True,
        lambda each: KNOWN[each.name],
        ReadCounts(),
    )
    assert shown(plan) == ([], [((3, 0), (3, 10))])
    plan = plan_partition(
        TOPIC, log((2, None), (3, None)), Bounds(), lambda *_: True, lambda _: None, ReadCounts()
    )
    assert shown(plan) == ([], [((2, 0), (2, 10)), ((3, 0), (3, 10))])


def test_an_empty_log() -> None:
    assert (
        plan_partition(
            TOPIC,
            KnownLog(Position(LedgerId(5), 0), (), True),
            Bounds(),
            lambda *_: True,
            lambda _: None,
            ReadCounts(),
        )
        is None
    )

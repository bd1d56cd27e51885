"""A table's entries are read once, each by Spark or by the source, whatever lies in files."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magnetar.base.ids import Position
from magnetar.spark.read.offsets import Offset
from magnetar.spark.read.spans import FoundSpans, ReadSpan
from magnetar.spark.read.table_shape import TableShape
from magnetar.spark.read.topic_table import divided
from magnetar.tables import history
from magnetar.tables.ledgers import KnownLog, ListedLedger
from magnetar.tables.segment_traits import SegmentTraits
from magnetar.tables.stretches import HistoryFile
from magnetar.tables.value_formats import BYTES

TOPIC = "persistent://public/default/t"
SHAPE = TableShape(("value",), BYTES)

Entry = tuple[int, int]


class Log:
    """Ledgers with their files; what each file has, of ledgers too that are gone."""

    def __init__(self) -> None:
        self.ledgers: list[ListedLedger] = []
        self.contents: dict[tuple[str, str], SegmentTraits | None] = {}
        """None for files whose footer cannot be read."""

    @property
    def entries(self) -> list[Entry]:
        return [(each.ledger_id, number) for each in self.ledgers for number in range(each.entries)]


def _traits(draw: st.DrawFn, ledgers: set[tuple[int, int, int]]) -> SegmentTraits | None:
    if draw(st.integers(0, 7)) == 0:
        return None
    return SegmentTraits(
        draw(st.integers(0, 3)) > 0, draw(st.booleans()), draw(st.booleans()), frozenset(ledgers)
    )


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log()
    ledger_id = 0
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["broker", "files", "merged", "elsewhere"]))
        sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
        url = "az://account/x" if kind == "elsewhere" else "file:///x"
        if kind in ("broker", "files", "elsewhere"):
            ledger_id += draw(st.integers(1, 3))
            files, first = [], 0
            for piece, size in enumerate(sizes if kind != "broker" else []):
                file = HistoryFile(url, f"{number}-{piece}", first, first + size - 1, 1)
                log.contents[file.place] = _traits(draw, {(ledger_id, first, first + size - 1)})
                files.append(file)
                first += size
            log.ledgers.append(ListedLedger(ledger_id, sum(sizes), 1, None, tuple(files)))
            continue
        there = {}
        for size in sizes:
            ledger_id += draw(st.integers(1, 3))
            there[ledger_id] = size
        log.contents[url, f"{number}-m"] = _traits(
            draw, {(each, 0, size - 1) for each, size in there.items()}
        )
        # The first ledgers of a log may have been removed.
        gone = draw(st.integers(0, len(there) - 1)) if not log.ledgers else 0
        log.ledgers += [
            ListedLedger(each, size, 1, None, (HistoryFile(url, f"{number}-m", 0, size - 1, 1),))
            for each, size in list(there.items())[gone:]
        ]
    return log


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(logs(), st.data())
def test_every_entry_once(monkeypatch: pytest.MonkeyPatch, log: Log, data: st.DataObject) -> None:
    entries = log.entries
    cuts = data.draw(st.lists(st.integers(0, len(entries)), min_size=2, max_size=4, unique=True))
    cuts = sorted(cuts)[: len(cuts) // 2 * 2]
    wanted: list[Entry] = []
    spans = []
    for first, stop in zip(cuts[::2], cuts[1::2], strict=True):
        chosen = entries[first:stop]
        end = Position(chosen[-1][0], chosen[-1][1] + 1)
        spans.append(ReadSpan(TOPIC, Offset(Position(*chosen[0]), None), Offset(end, None)))
        wanted += chosen
    state = KnownLog(Position(log.ledgers[-1].ledger_id, log.ledgers[-1].entries), tuple(log.ledgers), True)
    monkeypatch.setattr(history, "traits_of", lambda file: log.contents[file.place])
    scans, rest = divided(FoundSpans({TOPIC: state}, spans), SHAPE)
    read: Counter[Entry] = Counter()
    for scan in scans:
        assert len(set(scan.paths)) == len(scan.paths)
        for stretch in scan.stretches:
            assert stretch.file is not None
            traits = log.contents[stretch.file.place]
            assert traits is not None
            assert traits.is_plain
            assert scan.has_hidden or not traits.has_hidden
            assert scan.has_nulls or not traits.has_nulls
            if not scan.is_whole:
                read.update((stretch.start[0], each) for each in range(stretch.start[1], stretch.end[1]))
        if scan.is_whole:
            for place in {stretch.file.place for stretch in scan.stretches if stretch.file}:
                traits = log.contents[place]
                assert traits is not None
                read.update((each, at) for each, low, high in traits.ledgers for at in range(low, high + 1))
    for start, end in rest[TOPIC]:
        read.update(each for each in entries if start <= Position(*each) < end)
    assert read == Counter(wanted)

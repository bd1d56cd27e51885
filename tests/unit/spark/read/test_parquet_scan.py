"""What Spark is told of files of history, and of which ones it is told nothing."""

from __future__ import annotations

import pytest

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.spark.errors import OptionError
from magnetar.spark.option_values import canonical_names
from magnetar.spark.read.parquet_scan import can_be_scanned, scans_of, spark_path
from magnetar.spark.read.pinned import encode_ranges, parse_ranges
from magnetar.spark.read.read_options import ReadOptions
from magnetar.tables.segment_traits import SegmentTraits
from magnetar.tables.stretches import HistoryFile, Stretch

TOPIC = TopicName.parse("persistent://public/default/t-partition-3")
WHERE = {"service.url": "http://localhost:8080"}


def file(name: str = "a.parquet", url: str = "file:///data", last: int = 9) -> HistoryFile:
    return HistoryFile(url, name, 0, last, 100)


def traits(*ledgers: tuple[int, int, int], hidden: bool = False, nulls: bool = False) -> SegmentTraits:
    return SegmentTraits(True, hidden, nulls, frozenset(ledgers))


def part(ledger_id: int, first: int, stop: int, of: HistoryFile) -> Stretch:
    return Stretch((ledger_id, first), (ledger_id, stop), of)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///data%20of/x", "file:///data of/x/a.parquet"),
        ("hdfs://host:8020/x?user=me", "hdfs://host:8020/x/a.parquet"),
        ("s3://bucket/x?region=r", "s3a://bucket/x/a.parquet"),
        ("gs://bucket", "gs://bucket/a.parquet"),
        ("az://account/container/x", None),
        ("file:///data/%5Bx%5D", None),
        ("file:///data/{x}", None),
    ],
)
def test_paths(url: str, path: str | None) -> None:
    """Spark takes some letters for patterns, and has no name for an account alone."""
    assert spark_path(file(url=url)) == path


def test_names_that_sql_reads_in_two_ways() -> None:
    assert can_be_scanned(TOPIC)
    assert not can_be_scanned(TopicName.parse("persistent://public/default/it's"))


def test_files_that_are_wanted_as_they_are_have_no_condition() -> None:
    files = [file("a"), file("b")]
    found = [(part(number, 0, 10, each), traits((number, 0, 9))) for number, each in enumerate(files)]
    (scan,) = scans_of(TOPIC, found)
    assert scan.paths == ("file:///data/a", "file:///data/b")
    assert scan.condition(None) == ""
    assert scan.condition(frozenset((b"k", b"a"))) == "key IN (X'61', X'6b')"
    assert scan.condition(frozenset()) == "false"
    assert scan.columns(("value", "topic", "partition", "key"), as_text=False) == [
        "payload AS value",
        "'persistent://public/default/t' AS topic",
        "3 AS partition",
        "key AS key",
    ]


def test_rows_that_are_no_messages_and_values_that_are_none() -> None:
    found = [
        (part(1, 0, 10, file("a")), traits((1, 0, 9))),
        (part(2, 0, 10, file("b")), traits((2, 0, 9), hidden=True)),
        (part(3, 0, 10, file("c")), traits((3, 0, 9), nulls=True)),
    ]
    clean, looked_at = scans_of(TOPIC, found)
    assert clean.paths == ("file:///data/a",)
    assert looked_at.condition(None) == "marker_type IS NULL AND NOT is_compacted_out"
    assert looked_at.columns(("value",), as_text=True) == [
        "validate_utf8(CAST(IF(is_null_value, NULL, payload) AS STRING)) AS value"
    ]


def test_parts_of_files() -> None:
    """A file of several ledgers of which one was removed, and a part of another file."""
    merged = file("m")
    ledgers = ((4, 0, 9), (5, 0, 9), (6, 0, 9))
    found = [(part(number, 0, 10, merged), traits(*ledgers)) for number in (5, 6)]
    found.append((part(7, 3, 8, file("n")), traits((7, 0, 9))))
    (scan,) = scans_of(TOPIC, found)
    assert scan.paths == ("file:///data/m", "file:///data/n")
    assert scan.condition(None) == (
        "((ledger_id = 5 AND entry_id >= 0 AND entry_id < 10) OR (ledger_id = 6 AND entry_id >= 0 AND"
        " entry_id < 10) OR (ledger_id = 7 AND entry_id >= 3 AND entry_id < 8))"
    )


def test_a_file_of_several_ledgers_is_scanned_once() -> None:
    merged = file("m")
    ledgers = ((4, 0, 9), (5, 0, 9))
    (scan,) = scans_of(TOPIC, [(part(number, 0, 10, merged), traits(*ledgers)) for number in (4, 5)])
    assert scan.paths == ("file:///data/m",)
    assert scan.condition(None) == ""


def test_the_option_ranges() -> None:
    ranges = {str(TOPIC): [(Position(1, 0), Position(2, 3))], "persistent://public/default/empty": []}
    text = encode_ranges(ranges)
    assert parse_ranges(text) == tuple((topic, tuple(each)) for topic, each in ranges.items())
    options = ReadOptions.parse({**WHERE, "ranges": text})
    assert options.topics == tuple(ranges)
    for wrong in ("[]x", "[1]", '{"t": [["1:0"]]}', '{"t": [["1:0", "1:0"]]}', '{"t": [["1:0", "x"]]}'):
        with pytest.raises(OptionError, match=r"ranges|offset"):
            parse_ranges(wrong)
    for more in ({"topic": "t"}, {"startingOffsets": "earliest"}):
        with pytest.raises(OptionError):
            ReadOptions.parse({**WHERE, "ranges": text, **more})


def test_names_of_options() -> None:
    assert canonical_names({"Subscribe": "a", "serviceUrl": "u"}) == {"topics": "a", "service.url": "u"}
    with pytest.raises(OptionError, match="twice"):
        canonical_names({"subscribe": "a", "topics": "b"})

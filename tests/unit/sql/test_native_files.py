"""Files that the engine reads by itself: the rows and columns that decoding their entries gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from magnetar.arrow.decode import Decoder
from magnetar.base.entries import EntryRun
from magnetar.base.names import TopicName
from magnetar.client.client import TopicSchema
from magnetar.client.deliveries import EntryColumns
from magnetar.history.segment_writer import SegmentWriter
from magnetar.sql.engine import SqlEngine
from magnetar.sql.native_files import is_plain_path, reads_values, selects
from magnetar.sql.plans import FilePart
from magnetar.sql.topic_tables import TopicTable, table_of_topic
from magnetar.tables.history_files import facts_of
from magnetar.tables.stretches import HistoryFile, Stretch
from magnetar.tiered.parquet.parquet_history import SegmentOrigin, StoredTopicSchema
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

TOPIC = TopicName.parse("persistent://public/default/t-partition-3")
ENTRIES = 30
OLD = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}).encode()
NEW = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "long"}, {"name": "more", "type": ["null", "string"]}],
    }
).encode()
JSON = int(pb.Schema.Type.Json)


class FakeClient:
    """Has one schema."""

    def __init__(self, definition: bytes | None) -> None:
        self._definition = definition

    def schema(self, topic: TopicName, version: bytes | None = None) -> TopicSchema | None:
        return None if self._definition is None else TopicSchema(JSON, self._definition, b"\x01")


def table(definition: bytes | None) -> TopicTable:
    return table_of_topic(FakeClient(definition), TOPIC)  # type: ignore[arg-type]  # all that it is asked for


def entry(number: int) -> tuple[bytes, int]:
    """Plain messages, batches of which one message is compacted out, nulls, and markers."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1000 + number)
    if number % 10 == 9:
        metadata.marker_type = 10
        return build_entry(metadata, b"marker"), 1
    if number % 2:
        metadata.partition_key = f"k{number % 3}"
        metadata.null_value = number % 5 == 0
        metadata.properties.add(key="a", value=str(number))
        return build_entry(metadata, b"" if metadata.null_value else b'{"n": %d}' % number), 1
    singles = [
        (pb.SingleMessageMetadata(compacted_out=place == 2), b'{"n": %d}' % place) for place in range(4)
    ]
    metadata.num_messages_in_batch = 4
    return build_entry(metadata, build_batch(singles)), 4


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[HistoryFile, EntryColumns]:
    folder = tmp_path_factory.mktemp("a folder's")
    made = [entry(number) for number in range(ENTRIES)]
    columns, index = EntryColumns(), 100
    for number, (raw, count) in enumerate(made):
        index += count
        columns.add(7, number, raw, index - 1, 2000)
    schemas = [StoredTopicSchema(b"\x00", JSON, OLD)]
    writer = SegmentWriter(str(folder / "s.parquet"), SegmentOrigin(str(TOPIC), 7, tuple(schemas)))
    writer.add([EntryRun(7, 0, [raw for raw, _ in made], [count for _, count in made], 100, 2000)])
    writer.finish()
    size = (folder / "s.parquet").stat().st_size
    return HistoryFile(folder.as_uri(), "s.parquet", 0, ENTRIES - 1, size), columns


def by_engine(engine: SqlEngine, file: HistoryFile, made: TopicTable, first: int, stop: int) -> pa.Table:
    facts = facts_of(file, None)
    assert facts is not None
    is_whole = (first, stop) == (0, ENTRIES)
    part = FilePart(file, facts, (Stretch((7, first), (7, stop), file),), is_whole)
    path = Path(file.url.removeprefix("file://").replace("%20", " ").replace("%27", "'")) / file.name
    [select] = selects(TOPIC, made, [part], lambda _: str(path), None)
    return engine.query(f"{select} ORDER BY ledger_id, entry_id, batch_index").read_all()


@pytest.mark.parametrize("definition", [None, OLD])
@pytest.mark.parametrize(("first", "stop"), [(0, ENTRIES), (3, 8), (20, ENTRIES)])
def test_rows_are_those_of_the_entries(
    engine: SqlEngine,
    written: tuple[HistoryFile, EntryColumns],
    definition: bytes | None,
    first: int,
    stop: int,
) -> None:
    file, entries = written
    made = table(definition)
    found = by_engine(engine, file, made, first, stop)
    names = [name for name in made.columns.names if name not in made.fields]
    decoder = Decoder(TOPIC, names, values=made.value.open(lambda _: None))
    expected = pa.Table.from_batches(decoder.decode(entries.slice(first, stop)), decoder.schema).to_pylist()
    for row in expected:
        row |= {name: row["value"] and row["value"][name] for name in made.fields}
    assert _sorted(found.to_pylist()) == _sorted(expected)


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["ledger_id"], row["entry_id"], row["batch_index"]))


def test_values_of_other_schemas(written: tuple[HistoryFile, EntryColumns]) -> None:
    """A file has the fields of the schemas of its time."""
    facts = facts_of(written[0], None)
    assert facts is not None
    assert reads_values(table(OLD), facts, None)
    assert not reads_values(table(NEW), facts, None)
    assert reads_values(table(NEW), facts, {"n"}), "this field is what it was"
    assert not reads_values(table(NEW), facts, {"n", "more"})
    other_type = OLD.replace(b"long", b"string")
    assert not reads_values(table(other_type), facts, {"n"})
    assert reads_values(table(None), facts, None), "bytes are always there"


def test_facts_of_a_file(written: tuple[HistoryFile, EntryColumns]) -> None:
    facts = facts_of(written[0], frozenset((b"k1",)))
    assert facts is not None
    assert facts.has_keys
    assert facts.traits.has_hidden
    none = facts_of(written[0], frozenset((b"no such key",)))
    assert none is not None
    assert not none.has_keys
    assert facts_of(HistoryFile("file:///nowhere", "gone.parquet", 0, 1, 100), None) is None


def test_paths_that_the_engine_would_take_for_patterns() -> None:
    assert is_plain_path("/a folder's/x.parquet")
    assert not is_plain_path("/a*/x.parquet")
    assert not is_plain_path("/[a]/x.parquet")

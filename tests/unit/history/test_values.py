"""The column `value`: what schemas describe, ids that outlive versions, values that are broken."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.timestamp_pb2 import Timestamp

from magnetar.base.entries import EntryRun
from magnetar.history.files import LocalFile
from magnetar.history.reader import SegmentReader
from magnetar.history.segment_writer import write_segment
from magnetar.history.verifying import verify_segment
from magnetar.tiered.parquet.parquet_history import SegmentOrigin, StoredTopicSchema
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry
from support.endings import closed_at_end

TOPIC = "persistent://public/default/orders"
TIME_MS = 1_700_000_000_000


def version(number: int) -> bytes:
    return number.to_bytes(8, "big")


def avro(*fields: dict[str, Any]) -> bytes:
    return json.dumps({"type": "record", "name": "Order", "fields": fields}).encode()


def nullable(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def written(
    tmp_path: Path, messages: list[tuple[bytes | None, bytes]], schemas: list[StoredTopicSchema]
) -> pa.Table:
    """The table of a segment with these messages, each with its schema version (b"" for none)."""
    entries = []
    for number, (payload, schema_version) in enumerate(messages):
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=TIME_MS)
        if schema_version:
            metadata.schema_version = schema_version
        if payload is None:
            metadata.null_value = True
        entries.append(build_entry(metadata, payload or b""))
    runs = [EntryRun(5, 0, entries, None, 0, TIME_MS)]
    path = tmp_path / f"segment-{len(schemas)}"
    write_segment(runs, SegmentOrigin(TOPIC, 5, schemas), str(path))
    source = closed_at_end(LocalFile(str(path)))
    assert verify_segment(SegmentReader(source), runs) == len(messages)
    source.close()
    return pq.read_table(path)


def ids(kind: pa.DataType) -> dict[str, int]:
    return {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in kind}


def test_json_values_of_all_versions(tmp_path: Path) -> None:
    first = avro(nullable("id", "long"), nullable("old", "string"))
    second = avro(nullable("new", {"type": "array", "items": "string"}), nullable("id", "long"))
    schemas = [
        StoredTopicSchema(version(number), pb.Schema.Type.Json, definition)
        for number, definition in enumerate((first, second))
    ]
    table = written(
        tmp_path,
        [
            (b'{"id":1,"old":"x"}', version(0)),
            (b'{"id":2,\n "new":["a","b"]}', version(1)),
            (b"no JSON at all", version(1)),
            (None, version(1)),
            (b'{"id":3}', b""),
            (b'{"id":4}', version(9)),
        ],
        schemas,
    )
    assert table["value"].to_pylist() == [
        {"new": None, "id": 1, "old": "x"},
        {"new": ["a", "b"], "id": 2, "old": None},
        None,
        None,
        {"new": None, "id": 3, "old": None},
        None,
    ]
    kind = table.schema.field("value").type
    # `old` has 1001 for ever, and its values, though the newest version does not have it.
    assert ids(kind) == {"new": 1002, "id": 1000, "old": 1001}
    older = written(tmp_path, [(b'{"id":1,"old":"x"}', version(0))], schemas[:1])
    assert ids(older.schema.field("value").type) == {"id": 1000, "old": 1001}
    assert table.schema.field("value").metadata[b"PARQUET:field_id"] == b"40"


def test_avro_values_are_resolved_to_the_newest_version(tmp_path: Path) -> None:
    definitions = [
        avro(nullable("id", "int"), nullable("old", "string")),
        avro(nullable("id", "long"), nullable("amount", "double")),
    ]
    schemas = [
        StoredTopicSchema(version(number), pb.Schema.Type.Avro, definition)
        for number, definition in enumerate(definitions)
    ]

    def encoded(number: int, value: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(definitions[number])), value)
        return out.getvalue()

    table = written(
        tmp_path,
        [
            (encoded(0, {"id": 1, "old": "x"}), version(0)),
            (encoded(1, {"id": 1 << 40, "amount": 0.5}), version(1)),
            (b"\xff\xff", version(1)),
            (encoded(1, {"id": None, "amount": None}), version(1)),
        ],
        schemas,
    )
    assert table["value"].to_pylist() == [
        {"id": 1, "amount": None, "old": "x"},
        {"id": 1 << 40, "amount": 0.5, "old": None},
        None,
        {"id": None, "amount": None, "old": None},
    ]
    # An int that became a long is the same field.
    assert ids(table.schema.field("value").type) == {"id": 1000, "amount": 1002, "old": 1001}


@pytest.mark.parametrize("kind", [pb.Schema.Type.Avro, pb.Schema.Type.Json])
def test_fields_that_were_dropped_keep_their_values(tmp_path: Path, kind: int) -> None:
    """In records within records too; renamed fields are not dropped; what comes back is itself."""
    place_1 = {
        "type": "record",
        "name": "Place",
        "fields": [nullable("city", "string"), nullable("zip", "int")],
    }
    place_2 = {"type": "record", "name": "Place", "fields": [nullable("city", "string")]}
    definitions = [
        avro(nullable("id", "long"), nullable("note", "string"), nullable("to", place_1)),
        avro(nullable("id", "long"), nullable("to", place_2), nullable("rate", "double")),
        avro({**nullable("number", "long"), "aliases": ["id"]}, nullable("to", place_2)),
    ]
    schemas = [StoredTopicSchema(version(at), kind, definition) for at, definition in enumerate(definitions)]
    first = {"id": 1, "note": "n", "to": {"city": "x", "zip": 7}}
    second = {"id": 2, "to": {"city": "y"}, "rate": 0.5}
    third = {"number": 3, "to": None}

    def encoded(at: int, value: dict[str, Any]) -> bytes:
        if kind == pb.Schema.Type.Json:
            return json.dumps(value).encode()
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(definitions[at])), value)
        return out.getvalue()

    values = [(encoded(at, value), version(at)) for at, value in enumerate((first, second, third))]
    table = written(tmp_path, values, schemas)
    rows = table["value"].to_pylist()
    assert [row["note"] for row in rows] == ["n", None, None]
    assert [row["rate"] for row in rows] == [None, 0.5, None]
    assert [row["to"] for row in rows] == [{"city": "x", "zip": 7}, {"city": "y", "zip": None}, None]
    assert set(rows[0]) == {"number", "to", "note", "rate"}
    if kind == pb.Schema.Type.Avro:
        assert [row["number"] for row in rows] == [1, 2, 3]
    again = written(tmp_path, values[:2], [*schemas, schemas[0]])
    old, new = (ids(each.schema.field("value").type) for each in (table, again))
    assert {name: number for name, number in new.items() if name in old} == old
    assert again["value"].to_pylist()[0]["id"] == 1


def test_files_of_before_have_the_ids_of_files_of_now(tmp_path: Path) -> None:
    """A file that was written when the field was there, and one from after it was dropped, make one table."""
    definitions = [avro(nullable("id", "long"), nullable("old", "string")), avro(nullable("id", "long"))]
    schemas = [
        StoredTopicSchema(version(at), pb.Schema.Type.Json, definition)
        for at, definition in enumerate(definitions)
    ]
    value = [(b'{"id":1,"old":"x"}', version(0))]
    before, after = written(tmp_path, value, schemas[:1]), written(tmp_path, value, schemas)
    assert before["value"].to_pylist() == after["value"].to_pylist() == [{"id": 1, "old": "x"}]
    assert ids(before.schema.field("value").type) == ids(after.schema.field("value").type)


def test_protobuf_values(tmp_path: Path) -> None:
    files = FileDescriptorSet()
    Timestamp.DESCRIPTOR.file.CopyToProto(files.file.add())
    document = {
        "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": "google.protobuf.Timestamp",
        "rootFileDescriptorName": "google/protobuf/timestamp.proto",
    }
    schema = StoredTopicSchema(version(0), pb.Schema.Type.ProtobufNative, json.dumps(document).encode())
    message = Timestamp(seconds=7, nanos=5).SerializeToString()
    table = written(tmp_path, [(message, version(0)), (b"\xff", version(0))], [schema])
    assert table["value"].to_pylist() == [{"seconds": 7, "nanos": 5}, None]


def test_schemas_without_fields_give_no_column(tmp_path: Path) -> None:
    for schemas in (
        [],
        [StoredTopicSchema(version(0), pb.Schema.Type.String, b"")],
        [StoredTopicSchema(version(0), pb.Schema.Type.Avro, b"not JSON")],
        [
            StoredTopicSchema(version(0), pb.Schema.Type.Json, avro()),
            StoredTopicSchema(version(1), pb.Schema.Type.Bool, b""),
        ],
    ):
        table = written(tmp_path, [(b"x", b"")], schemas)
        assert "value" not in table.schema.names
        for file in tmp_path.iterdir():
            file.unlink()


def test_many_broken_values_cost_the_decoded_fields_only(tmp_path: Path) -> None:
    schema = StoredTopicSchema(version(0), pb.Schema.Type.Json, avro(nullable("id", "long")))
    table = written(tmp_path, [(b"{", version(0))] * 300 + [(b'{"id":1}', version(0))], [schema])
    assert table["value"].null_count == 301
    assert table["payload"].null_count == 0

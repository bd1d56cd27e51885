"""Segments and tables over them, without a broker."""

from __future__ import annotations

import json
import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro

from magnetar.base.entries import EntryRun
from magnetar.history.segment_writer import write_segment
from magnetar.lake.catalog import Lake
from magnetar.lake.lake_values import CatalogSettings, LakeFile, ListVersion, LogFiles
from magnetar.lake.setup import catalog_settings
from magnetar.tiered.parquet.parquet_history import SegmentOrigin, StoredTopicSchema
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry

TOPIC = "persistent://public/default/my.topic"
TIME_MS = 1_700_000_000_000


def record(*fields: tuple[str, Any]) -> bytes:
    """Avro's definition of a record."""
    named = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "R", "fields": named}).encode()


class LakeFolder:
    """A store in a folder, with a catalog beside it."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "offloaded"
        self.settings: CatalogSettings = catalog_settings(
            "", store_url=self.store.as_uri(), file=folder / "catalog.db"
        )
        self.lake = Lake(self.settings)

    def segment(
        self, ledger_id: int, values: list[Any], *schemas: bytes, version: int | None = None
    ) -> LakeFile:
        """A file of a ledger: values by the schema `version` (default: the last one), or plain bytes."""
        version = len(schemas) - 1 if version is None else version
        entries = [_entry(number, value, schemas, version) for number, value in enumerate(values)]
        path = self.store / "public/default/persistent/my%2Etopic" / f"{ledger_id:019d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        known = [
            StoredTopicSchema(struct.pack(">q", number), int(pb.Schema.Type.Avro), definition)
            for number, definition in enumerate(schemas)
        ]
        summary = write_segment(
            [EntryRun(ledger_id, 0, entries, None, 0, TIME_MS)],
            SegmentOrigin(TOPIC, ledger_id, known),
            str(path),
        )
        return LakeFile(f"file://{path}", summary.file_bytes, ledger_id)

    def wanted(self, version: int, *files: LakeFile, partition: int = -1, retired: int = 0) -> LogFiles:
        return LogFiles(TOPIC, partition, ListVersion(TIME_MS, version, retired), files)

    def rows(self, *columns: str) -> list[Any]:
        """Rows of the table in the order of the log, these columns of each."""
        table = self.lake.catalog.load_table(("public__default", "my_x002e_topic"))
        rows = table.scan().to_arrow().to_pylist()
        rows.sort(key=lambda row: (row["partition"], row["ledger_id"], row["entry_id"]))
        return [tuple(row[name] for name in columns) for row in rows]

    def ledgers(self) -> list[int]:
        """Ledgers that the table has, one for each file."""
        return sorted({ledger for (ledger,) in self.rows("ledger_id")})


def _entry(number: int, value: Any, schemas: tuple[bytes, ...], version: int) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=number, publish_time=TIME_MS + number, partition_key=f"k{number}"
    )
    if not schemas:
        return build_entry(metadata, value)
    metadata.schema_version = struct.pack(">q", version)
    made = BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(json.loads(schemas[version])), value)
    return build_entry(metadata, made.getvalue())

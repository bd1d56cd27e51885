"""How a segment's file is laid out, beyond what Parquet says; shared by writer and reader.

    row groups | key index, if any message has a key | footer of Parquet

Parquet finds everything by offsets from its footer, so that other readers pass over the key index. The
key-value metadata of the footer names it, and holds what the file is.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from magnetar.tiered.parquet.api import DamagedSegmentError, TopicSchema

FORMAT_KEY: Final = "magnetar.format"
TOPIC_KEY: Final = "magnetar.topic"
RANGE_KEY: Final = "magnetar.entries"
"""`ledger:first entry:last entry`."""
SUMMARY_KEY: Final = "magnetar.summary"
"""The summary as JSON, with 0 for the size and the checksum of the file, which it cannot hold."""
KEY_INDEX_KEY: Final = "magnetar.key_index"
SCHEMAS_KEY: Final = "magnetar.schemas"


class KeyIndexPlace(NamedTuple):
    """Where the key index lies in the file."""

    offset: int
    length: int
    bits: int

    def encode(self) -> str:
        """`offset:length:bits` in decimal."""
        return ":".join(map(str, self))

    @classmethod
    def decode(cls, text: str) -> KeyIndexPlace:
        """Raises DamagedSegmentError."""
        try:
            return cls(*map(int, text.split(":")))
        except (ValueError, TypeError) as error:
            raise DamagedSegmentError(f"the key index is said to be at {text!r}") from error


def encode_schemas(schemas: Sequence[TopicSchema]) -> str:
    """Schema versions as JSON: version in hex, definition in base64."""
    rows = [
        {
            "version": schema.version.hex(),
            "kind": schema.kind,
            "definition": base64.b64encode(schema.definition).decode(),
            "properties": dict(schema.properties),
        }
        for schema in schemas
    ]
    return json.dumps(rows, separators=(",", ":"))


def decode_schemas(text: str | bytes) -> list[TopicSchema]:
    """Raises DamagedSegmentError."""
    try:
        rows: list[dict[str, Any]] = json.loads(text)
        return [
            TopicSchema(
                bytes.fromhex(row["version"]),
                int(row["kind"]),
                base64.b64decode(row["definition"], validate=True),
                row["properties"],
            )
            for row in rows
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedSegmentError(f"the schemas of a segment cannot be read: {error}") from error

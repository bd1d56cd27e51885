"""A topic's schema versions as JSON, as stored in a segment and sent to the worker."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from magnetar.tiered.parquet.parquet_history import DamagedSegmentError, StoredTopicSchema


def encode_schemas(schemas: Sequence[StoredTopicSchema]) -> str:
    """The versions as JSON: version in hex, definition in base64."""
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


def decode_schemas(text: str | bytes) -> list[StoredTopicSchema]:
    """The inverse of `encode_schemas`. Raises DamagedSegmentError."""
    try:
        rows: list[dict[str, Any]] = json.loads(text)
        return [
            StoredTopicSchema(
                bytes.fromhex(row["version"]),
                int(row["kind"]),
                base64.b64decode(row["definition"], validate=True),
                row["properties"],
            )
            for row in rows
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedSegmentError(f"the schemas of a segment cannot be read: {error}") from error

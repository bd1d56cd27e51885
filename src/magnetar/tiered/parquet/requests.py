"""Requests and results of the worker as JSON. Sans-IO, used by both sides."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from typing import Any

from magnetar.base.errors import DiskFullError
from magnetar.tiered.parquet.parquet_history import (
    DamagedRowsError,
    DamagedSegmentError,
    FoundMessage,
    HistoryError,
    SegmentOrigin,
)
from magnetar.tiered.parquet.stored_schemas import decode_schemas, encode_schemas

_ERRORS: dict[str, type[Exception]] = {
    "damaged": DamagedSegmentError,
    "disk-full": DiskFullError,
    "history": HistoryError,
}


Values = dict[str, Any]
"""A request or a result by the names of its parts. Each side reads what this module wrote on the other."""


def dump(values: Values) -> bytes:
    """Values as JSON."""
    return json.dumps(values, separators=(",", ":")).encode()


def load(body: bytes) -> Values:
    """The inverse of `dump`."""
    values: Values = json.loads(body)
    return values


def dump_origin(origin: SegmentOrigin) -> dict[str, object]:
    """An origin as JSON values."""
    return {
        "topic": origin.topic,
        "ledger_id": origin.ledger_id,
        "schemas": encode_schemas(origin.schemas),
        "merged": origin.merged,
    }


def load_origin(values: Values) -> SegmentOrigin:
    """The inverse of `dump_origin`."""
    schemas = decode_schemas(values["schemas"])
    return SegmentOrigin(values["topic"], values["ledger_id"], schemas, values["merged"])


def dump_messages(messages: list[FoundMessage], key_damage: str) -> bytes:
    """Found messages as JSON. `key_damage`: the damage of the key index; empty when there is none."""
    rows = []
    for message in messages:
        row = asdict(message)
        row["key"] = base64.b64encode(message.key).decode()
        row["payload"] = base64.b64encode(message.payload).decode()
        row["schema_version"] = message.schema_version.hex()
        rows.append(row)
    return dump({"messages": rows, "key_damage": key_damage})


def load_messages(values: Values) -> list[FoundMessage]:
    """The inverse of `dump_messages`."""
    return [
        FoundMessage(
            **{
                **row,
                "key": base64.b64decode(row["key"]),
                "payload": base64.b64decode(row["payload"]),
                "schema_version": bytes.fromhex(row["schema_version"]),
                "properties": tuple((key, value) for key, value in row["properties"]),
            }
        )
        for row in values["messages"]
    ]


def dump_error(error: Exception, detail: str) -> bytes:
    """An error of the worker as JSON; unexpected kinds are passed as `history`."""
    kind = next((name for name, known in _ERRORS.items() if isinstance(error, known)), "history")
    entries = [error.first_entry, error.last_entry] if isinstance(error, DamagedRowsError) else None
    return dump({"kind": kind, "message": detail, "entries": entries})


def load_error(body: bytes) -> Exception:
    """The inverse of `dump_error`."""
    values = load(body)
    if values["entries"] is not None:
        return DamagedRowsError(values["message"], *values["entries"])
    return _ERRORS[values["kind"]](values["message"])

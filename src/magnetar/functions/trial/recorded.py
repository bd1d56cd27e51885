"""Recorded messages: lines of JSON as `magnetar consume -o json` prints them (pure).

| Field | What it is |
|---|---|
| `value` | the payload: a text as it is, an object, a list or a number as JSON, null: no bytes |
| `base64` | the payload, in place of `value`, when that does not tell it |
| `topic` | name of the topic; by default the only input |
| `key`, `properties`, `event_time` | as the message has them |
| `broker_time`, `publish_time` | when it comes, Unix milliseconds; by default with the one before it |
| `id`, `index` | its position and number; by default those of its line |

Lines without text are passed over.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from magnetar.base.ids import LedgerId
from magnetar.base.names import InvalidTopicNameError, TopicName
from magnetar.functions.errors import RecordingError

BEGIN_MS: Final = 1_700_000_000_000
"""When a recording begins that says nothing of times, Unix milliseconds."""


_NO_LEDGER: Final = LedgerId(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMessage:
    """One message."""

    topic: TopicName
    payload: bytes
    time_ms: int
    """When it comes, Unix milliseconds."""
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int = 0
    ledger_id: LedgerId = _NO_LEDGER
    entry_id: int = 0
    index: int = -1
    """Its number in the topic; -1: not recorded."""


def recorded(lines: Iterable[str], topic: str = "") -> list[RecordedMessage]:
    """The messages. `topic`: of lines that name none. Raises RecordingError."""
    found: list[RecordedMessage] = []
    before_ms = BEGIN_MS
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                message = _message(object_of(line), number, topic, before_ms)
            except (ValueError, TypeError, InvalidTopicNameError) as error:
                raise RecordingError(f"line {number} is not a recorded message: {error}") from error
            before_ms = message.time_ms
            found.append(message)
    if not found:
        raise RecordingError("the recording has no messages: record some with `magnetar consume -o json`")
    return found


def object_of(line: str) -> dict[str, object]:
    """The object of a line. Raises ValueError."""
    document = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return document


def payload_of(document: Mapping[str, object]) -> bytes:
    """The payload that `value` or `base64` say. Raises ValueError."""
    encoded = document.get("base64")
    if encoded is not None:
        return base64.b64decode(str(encoded), validate=True)
    if "value" not in document:
        raise ValueError("it has no value")
    value = document["value"]
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _message(document: dict[str, object], number: int, topic: str, before_ms: int) -> RecordedMessage:
    name = document.get("topic") or topic
    if not name:
        raise ValueError("it names no topic, and there is not one input alone")
    properties = document.get("properties") or {}
    if not isinstance(properties, dict):
        raise ValueError("properties must be an object")
    ledger, _, entry = str(document.get("id", "")).partition(":")
    batch = entry.count(":") > 1
    key = document.get("key")
    return RecordedMessage(
        topic=TopicName.parse(str(name)),
        payload=payload_of(document),
        time_ms=max(before_ms, _number(document, "broker_time") or _number(document, "publish_time")),
        key=None if key is None else str(key),
        properties={str(each): str(value) for each, value in properties.items()},
        event_time_ms=_number(document, "event_time"),
        ledger_id=LedgerId(int(ledger) if ledger.isdecimal() else 0),
        # Messages of one batch are entries of their own here.
        entry_id=number - 1 if batch or not entry else int(entry.partition(":")[0]),
        index=_number(document, "index") if document.get("index") is not None else -1,
    )


def _number(document: Mapping[str, object], name: str) -> int:
    value = document.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number")
    return value

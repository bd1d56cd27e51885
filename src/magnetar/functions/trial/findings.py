"""What a trial found: results as lines of JSON, and what differs from what was expected (pure).

| Line | What it says |
|---|---|
| `{"topic": T, "value": V, …}` | a message was published; with key, properties, event time |
| `{"failed": ID, "exception": E, "value": V}` | the call for a message raised an exception |
| `{"state": KEY, "value": V}`, `{"state": KEY, "number": N}` | a value of the state in the end |

A text that is a JSON object or list is shown as such. What was expected is compared in those fields that its
lines name; the state only if a line names one.
"""

from __future__ import annotations

import base64
import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from magnetar.base.names import InvalidTopicNameError, TopicName
from magnetar.functions.errors import RecordingError
from magnetar.functions.instance.batches_out import OutputMessage
from magnetar.functions.ports import StateValue
from magnetar.functions.trial.recorded import object_of

Line = dict[str, object]

_KINDS: Final = ("failed", "state", "topic")


def line_of_message(topic: str, output: OutputMessage) -> Line:
    """A message that was published."""
    line: Line = {"topic": topic, "key": output.key, "properties": dict(output.properties)}
    line["event_time"], line["deliver_at"] = output.event_time_ms, output.deliver_at_ms
    return {name: each for name, each in {**line, **shown(output.payload)}.items() if _says(name, each)}


def line_of_failure(message_id: str, exception: str, payload: bytes) -> Line:
    """A call that raised an exception."""
    return {"failed": message_id, "exception": exception, **shown(payload)}


def line_of_state(key: str, value: StateValue) -> Line:
    """A value of the state."""
    return {"state": key, **({"number": value.number} if value.number is not None else shown(value.value))}


def shown(payload: bytes) -> Line:
    """A payload as `value`, or as `base64` when it is not UTF-8."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}
    return {"value": _object_or_text(text)}


def _object_or_text(value: object) -> object:
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:  # It only looks like one.
            return value
    return value


def _says(name: str, value: object) -> bool:
    return name in ("topic", "value", "base64") or value not in (None, 0, "", {})


def expected_lines(lines: Iterable[str]) -> list[Line]:
    """Lines of a file of expectations. Raises RecordingError."""
    found: list[Line] = []
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = object_of(text)
            kind = kind_of(line)
        except ValueError as error:
            raise RecordingError(f"line {number} of what is expected is not understood: {error}") from error
        if "value" in line and kind != "state":
            value = line["value"]
            # Numbers and truths are texts on the wire.
            line["value"] = json.dumps(value) if isinstance(value, int | float) else _object_or_text(value)
        found.append(line)
    return found


def kind_of(line: Mapping[str, object]) -> str:
    """What a line speaks of: one of failed, state, topic. Raises ValueError."""
    for kind in _KINDS:
        if kind in line:
            return kind
    if "value" in line or "base64" in line:
        return "topic"
    raise ValueError("a line names a topic, a value, a state, or a message that failed")


def difference(expected: Sequence[Line], found: Sequence[Line]) -> list[str]:
    """The lines of a unified diff; none when all is as expected."""
    named: dict[str, set[str]] = {}
    for line in expected:
        named.setdefault(kind_of(line), set()).update(line)
    if "state" not in named:
        found = [line for line in found if kind_of(line) != "state"]
    wanted = [_text(line, named) for line in expected]
    got = [_text(line, named) for line in found]
    return list(difflib.unified_diff(wanted, got, "expected", "found", lineterm=""))


def _text(line: Line, named: Mapping[str, set[str]]) -> str:
    """A line with the fields that count, in an order of their own."""
    fields = named.get(kind_of(line)) or set(line)
    kept = {name: _full(name, each) for name, each in line.items() if name in fields and _says(name, each)}
    return json.dumps(dict(sorted(kept.items(), key=_place)), ensure_ascii=False)


def _place(field: tuple[str, object]) -> tuple[bool, bool, str]:
    name = field[0]
    return name not in _KINDS, name in ("value", "base64"), name


def _full(name: str, value: object) -> object:
    """Topics by their full names."""
    if name != "topic":
        return value
    try:
        return str(TopicName.parse(str(value)))
    except InvalidTopicNameError:
        return value

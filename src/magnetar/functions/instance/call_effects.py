"""What one call does beside its result: messages it publishes, changes of the state (pure).

They are kept until the call ends. When it raises an exception, they are dropped, so that the repeated call
does not do them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from magnetar.functions.errors import FunctionError
from magnetar.functions.instance.batches_in import Said, TakenEntry
from magnetar.functions.instance.batches_out import Output, OutputMessage
from magnetar.functions.sdk.message_id import InputMessageId
from magnetar.functions.state.pending_state import PendingState
from magnetar.functions.state.state_change import (
    KEY_CHARS_MAX,
    VALUE_BYTES_MAX,
    StateChange,
    StateChanges,
)

Callback = Callable[[object, object], object]


class Publication(NamedTuple):
    """A message that a call publishes by its context."""

    topic: str
    output: Output
    callback: Callback | None


class CallEffects:
    """The effects of the running call."""

    def __init__(self, state: PendingState | None, now_ms: Callable[[], int]) -> None:
        self._state = state
        self._now_ms = now_ms
        self.published: list[Publication] = []
        self.changes: StateChanges = {}

    @property
    def has_any(self) -> bool:
        """Whether the call did anything."""
        return bool(self.published or self.changes)

    def clear(self) -> None:
        """The call has failed, or its effects were taken."""
        self.published = []
        self.changes = {}

    def publish(
        self, topic: str, payload: bytes, said: Mapping[str, object], callback: Callback | None
    ) -> None:
        """See `Context.publish`."""
        if not said:
            self.published.append(Publication(topic, payload, callback))
            return
        self.published.append(Publication(topic, message_of(payload, said, self._now_ms()), callback))

    def value(self, key: str) -> bytes | None:
        """The value that the call sees."""
        assert self._state is not None, "asked only where there is a state"
        value = self._state.value(key)
        change = self.changes.get(key)
        return value if change is None else change.applied_to(value)

    def add(self, key: str, amount: int) -> None:
        """Adds to a counter."""
        self._change(key).add(int(amount))

    def put(self, key: str, value: bytes | None, ttl_s: float | None) -> None:
        """Sets or deletes a value."""
        if value is not None and len(value) > VALUE_BYTES_MAX:
            raise FunctionError(f"a value of {len(value)} bytes; a state keeps up to {VALUE_BYTES_MAX}")
        expires_ms = 0 if ttl_s is None else self._now_ms() + int(ttl_s * 1000)
        self._change(key).put(value, expires_ms)

    def _change(self, key: str) -> StateChange:
        change = self.changes.get(key)
        if change is None:
            if len(key) > KEY_CHARS_MAX:
                raise FunctionError(f"a key of {len(key)} characters; a state keeps up to {KEY_CHARS_MAX}")
            change = self.changes[key] = StateChange()
        return change


def message_of(payload: bytes, said: Mapping[str, object], now_ms: int) -> OutputMessage:
    """The message that the arguments of the official `send` describe. Raises FunctionError."""
    properties = said.get("properties") or {}
    key = said.get("partition_key")
    if not isinstance(properties, Mapping) or not (key is None or isinstance(key, str)):
        raise FunctionError("properties must be a dict of texts, and partition_key a text")
    after = said.get("deliver_after")
    deliver_at_ms = _number(said.get("deliver_at"))
    if after is not None:
        seconds = after.total_seconds() if hasattr(after, "total_seconds") else _number(after) / 1000
        deliver_at_ms = now_ms + int(seconds * 1000)
    return OutputMessage(
        payload,
        key,
        {str(name): str(value) for name, value in properties.items()},
        _number(said.get("event_timestamp")),
        deliver_at_ms,
    )


def _number(value: object) -> int:
    if value is None:
        return 0
    if not isinstance(value, int | float):
        raise FunctionError(f"{value!r} is not a time in milliseconds")
    return int(value)


class EntryMessage:
    """One message of an entry, as the context shows it."""

    __slots__ = ("_said", "entry", "part", "row", "topic")

    def __init__(self, entry: TakenEntry, row: int, topic: str, part: int) -> None:
        """`part`: number of the topic's partition; -1: none."""
        self.entry = entry
        self.row = row
        self.topic = topic
        self.part = part
        self._said: Said | None = None

    def move(self, row: int) -> None:
        """Shows another message of the entry."""
        self.row = row
        self._said = None

    def _metadata(self) -> Said:
        if self._said is None:
            self._said = self.entry.said_of(self.row)
        return self._said

    def message_id(self) -> InputMessageId:
        """Its position."""
        batch = -1 if self.entry.said is None else self.row
        return InputMessageId(self.entry.ledger_id, self.entry.entry_id, self.part, batch)

    def key(self) -> str | None:
        """Its partition key."""
        said = self._metadata()
        return said.partition_key if said.HasField("partition_key") else None

    def ordering_key(self) -> bytes | None:
        """Its ordering key."""
        said = self._metadata()
        return said.ordering_key if said.HasField("ordering_key") else None

    def properties(self) -> dict[str, str]:
        """Its properties."""
        return {pair.key: pair.value for pair in self._metadata().properties}

    def event_time_ms(self) -> int:
        """Its event time."""
        return self._metadata().event_time

    def index(self) -> int:
        """Its index in the topic."""
        last = self.entry.index
        return last if last < 0 else last - len(self.entry.payloads) + 1 + self.row

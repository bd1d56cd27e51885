"""What clients did and were told, one event a line of JSON. Times are of the machine's monotonic clock, which
all processes of a run share; a number stands for one message of one producer of one topic, and is sent once.

What a producer does not know (no answer when the run ended) is `sent` without `acked` or `refused`: such a
message may be there or not.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

AGAIN: Final = "again"
"""Name of the second reader."""
KEYS: Final = 16
"""A message's key is its number modulo this."""


class Id(NamedTuple):
    """Where a message is: its place in the topic's order."""

    ledger: int
    entry: int
    batch: int
    partition: int = -1


class Value(NamedTuple):
    """What a message says of itself."""

    producer: str
    number: int

    @property
    def key(self) -> int:
        """The key of the message."""
        return self.number % KEYS

    @property
    def payload(self) -> bytes:
        """Bytes of the message: the value, and what shows damage."""
        told = f"{self.producer} {self.number} "
        return (told + "x" * (100 - len(told))).encode()

    @classmethod
    def of(cls, payload: bytes) -> Value:
        """Raises ValueError when these are other bytes."""
        # Other bytes may not even be text: what is told of them is the same.
        producer, number, *_ = [*payload.decode(errors="replace").split(" ", 2), "", ""]
        value = cls(producer, int(number) if number.isdecimal() else -1)
        if value.payload != payload:
            raise ValueError(f"not the bytes of a message: {payload[:40]!r}")
        return value


class Event(NamedTuple):
    """One line."""

    at_s: float
    kind: str
    """`sent`, `acked` and `refused`, by a producer; `received` and `attached`, by a consumer; `made`: a
    producer was attached to a broker, again or at first; `stored`: a reader found it in the end; `cursor`:
    where a subscription stood in the end; `served`: a broker that serves the topic in the end; `error`: what
    a client was told; `unanswered`: what the rig asked a broker in vain."""
    topic: str
    actor: str
    """Producer; subscription and consumer, with a slash between; broker."""
    value: Value | None = None
    place: Id | None = None
    note: str = ""


class Recorder:
    """Writes events of all threads of a process."""

    def __init__(self, path: Path) -> None:
        # Line by line: what a process knew when it was killed is worth most.
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()

    def note(
        self,
        kind: str,
        topic: str,
        actor: str,
        value: Value | None = None,
        place: Id | None = None,
        note: str = "",
    ) -> None:
        """Adds an event of now."""
        with self._lock:
            # The time is taken inside: the file is in its order.
            self._file.write(line(Event(time.monotonic(), kind, topic, actor, value, place, note)))

    def add(self, event: Event) -> None:
        """Adds an event of another time."""
        with self._lock:
            self._file.write(line(event))

    def close(self) -> None:
        """Everything is in the file then."""
        with self._lock:
            self._file.close()


def line(event: Event) -> str:
    """An event as JSON."""
    row = [round(event.at_s, 4), *event[1:4], event.value, event.place, event.note]
    return json.dumps(row, separators=(",", ":")) + "\n"


def events(paths: Iterable[Path]) -> list[Event]:
    """The events of some files, by time."""
    found = [each for path in paths for each in _of_file(path)]
    found.sort(key=lambda each: each.at_s)
    return found


def _of_file(path: Path) -> Iterator[Event]:
    with path.open(encoding="utf-8") as lines:
        for text in lines:
            if not text.endswith("\n"):
                return  # the process was killed in the middle of its last line
            at_s, kind, topic, actor, value, place, note = json.loads(text)
            yield Event(at_s, kind, topic, actor, value and Value(*value), place and Id(*place), note)


@dataclass
class Sent:
    """What became of one message."""

    at_s: float
    acked_s: float | None = None
    place: Id | None = None
    refused: str = ""


@dataclass
class TopicHistory:
    """The events of one topic, in the form that the rules ask for."""

    name: str
    sent: dict[Value, Sent] = field(default_factory=dict)
    made_s: dict[str, list[float]] = field(default_factory=dict)
    """When each producer was attached."""
    stored: list[tuple[Id, Value]] = field(default_factory=list)
    """What a reader found in the end, in its order."""
    is_read: bool = False
    """Whether the reader came to the end."""
    again: list[tuple[Id, Value]] = field(default_factory=list)
    """What a second reader found, after all processes had been killed and started again."""
    is_restarted: bool = False
    """Whether that was done."""
    is_read_again: bool = False
    received: dict[str, list[tuple[float, str, Value, Id]]] = field(default_factory=dict)
    """By subscription: time, consumer, message and place."""
    cursors: dict[str, dict[str, object]] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)
    strange: list[str] = field(default_factory=list)
    """Bytes that no producer sent."""


def by_topic(found: Iterable[Event]) -> dict[str, TopicHistory]:
    """The histories of all topics."""
    topics: dict[str, TopicHistory] = {}
    for event in found:
        if event.topic:
            _add(topics.setdefault(event.topic, TopicHistory(event.topic)), event)
    return topics


def _add(topic: TopicHistory, event: Event) -> None:
    value, place = event.value, event.place
    if event.kind == "sent" and value:
        topic.sent[value] = Sent(event.at_s)
    elif event.kind == "acked" and value:
        sent = topic.sent[value]
        sent.acked_s, sent.place = event.at_s, place
    elif event.kind == "refused" and value:
        topic.sent[value].refused = event.note
    elif event.kind == "made":
        topic.made_s.setdefault(event.actor, []).append(event.at_s)
    elif event.kind == "received" and value and place:
        subscription, _, consumer = event.actor.partition("/")
        topic.received.setdefault(subscription, []).append((event.at_s, consumer, value, place))
    elif event.kind == "subscribed":
        topic.received.setdefault(event.actor, [])
    elif event.kind == "stored" and value and place:
        (topic.again if event.actor == AGAIN else topic.stored).append((place, value))
    elif event.kind == "read" and event.actor == AGAIN:
        topic.is_read_again = True
    elif event.kind == "read":
        topic.is_read = True
    elif event.kind == "restarted":
        topic.is_restarted = True
    elif event.kind == "cursor":
        topic.cursors[event.actor] = json.loads(event.note)
    elif event.kind == "served":
        topic.served.add(event.actor)
    elif event.kind == "strange":
        topic.strange.append(f"{event.actor}: {event.note}")

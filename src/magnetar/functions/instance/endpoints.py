"""What a passage knows of its two ends: topics that are read, topics that are written (pure).

`links` has those of a broker, `trial` those of recorded messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.deliveries import EntryColumns
from magnetar.functions.errors import BadResultError
from magnetar.functions.instance.batches_in import TakenEntry
from magnetar.functions.instance.batches_out import Output
from magnetar.functions.instance.plan import InputPlan

OUTPUTS_PER_MESSAGE_MAX: Final = 4096
"""Most messages that one message may lead to in one topic with effectively once: their numbers are derived
from its own."""

Done = Callable[[], None]


class EntryStream(Protocol):
    """Entries of one topic or partition."""

    def ask(self, messages: int) -> None:
        """Permits so many further messages."""
        ...

    def read(self, timeout_s: float) -> EntryColumns:
        """What has come. Raises ClientError."""
        ...

    def has_data(self) -> bool:
        """Whether `read` would find something without waiting."""
        ...

    def fileno(self) -> int:
        """What wakes the instance: a descriptor, or a negative number that stands for one."""
        ...

    def acknowledge_soon(self, positions: Sequence[Position]) -> None:
        """Acknowledges whole entries. Raises ClientError."""
        ...

    def keep(self) -> None:
        """Tells the broker that this side is there. Raises ClientError."""
        ...

    def close(self) -> None:
        """Ends it; what is not acknowledged is delivered again."""
        ...


class Source:
    """One topic or partition that is read."""

    __slots__ = ("asked", "consumer", "input", "name", "number", "queue_messages", "topic")

    def __init__(self, number: int, topic: TopicName, given: InputPlan, consumer: EntryStream) -> None:
        self.number = number
        self.topic = topic
        self.name = str(topic)
        self.input = given
        self.consumer = consumer
        self.queue_messages = max(1, given.queue_messages)
        self.asked = 0
        """Permits that the broker still has."""

    def ask(self, waiting: int) -> None:
        """Gives permits for what fits beside `waiting` messages; not for less than half of the queue."""
        room = self.queue_messages - self.asked - waiting
        if room >= (self.queue_messages + 1) // 2:
            self.consumer.ask(room)
            self.asked += room


class Inputs(Protocol):
    """The topics that are read."""

    @property
    def all(self) -> list[Source]:
        """By their numbers; it only grows."""
        ...

    def search(self) -> None:
        """Looks for new ones. Raises ClientError."""
        ...

    def acknowledge(self, entries: Iterable[TakenEntry]) -> None:
        """Acknowledges entries. Raises ClientError."""
        ...

    def close(self) -> None:
        """Ends all."""
        ...


class Outputs(Protocol):
    """The topics that are written."""

    @property
    def waits(self) -> bool:
        """Whether receipts are missing."""
        ...

    def filenos(self) -> list[int]:
        """Descriptors that tell of receipts."""
        ...

    def send(self, topic: str, outputs: Sequence[Output], done: Done) -> int:
        """Publishes; `done` is called, in `collect`, once for each of the returned number of partitions, when
        all that went there is stored. Raises ClientError."""
        ...

    def send_once(
        self, topic: str, outputs: Sequence[Output], source: Source, entry: TakenEntry, done: Done
    ) -> int:
        """As `send`, and what was stored before is not stored again: the numbers come from the entry's
        index. Raises ClientError, BadResultError."""
        ...

    def collect(self) -> None:
        """Takes the receipts that have come. Raises ClientError."""
        ...

    def keep(self) -> None:
        """Tells the brokers that this side is there. Raises ClientError."""
        ...

    def close(self) -> None:
        """Ends all."""
        ...


class Ends(NamedTuple):
    """Both ends of a passage."""

    sources: Inputs
    targets: Outputs


def refuse_too_many(topic: str, outputs: int, messages: int) -> None:
    """With effectively once an entry of `messages` leads to a bounded number of outputs. Raises
    BadResultError."""
    if outputs > messages * OUTPUTS_PER_MESSAGE_MAX:
        raise BadResultError(
            f"{outputs} messages for {topic} from an entry of {messages}: at most"
            f" {OUTPUTS_PER_MESSAGE_MAX} for each are possible with EFFECTIVELY_ONCE"
        )

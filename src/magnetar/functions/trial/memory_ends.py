"""Both ends of a passage in memory: topics of recorded messages, and all that was published (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.client.deliveries import EntryColumns
from magnetar.functions.instance.batches_in import TakenEntry
from magnetar.functions.instance.batches_out import Output, OutputMessage
from magnetar.functions.instance.endpoints import Done, Source, refuse_too_many
from magnetar.functions.instance.plan import InputPlan, InstancePlan
from magnetar.functions.trial.recorded import RecordedMessage
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry


class MemoryStream:
    """Entries of one topic, as they are put."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._columns = EntryColumns()
        self.permits = 0
        """Messages that may come."""

    def put(self, ledger_id: LedgerId, entry_id: int, entry: bytes, *, index: int, time_ms: int) -> None:
        """An entry of one message has come."""
        self.permits -= 1
        self._columns.add(ledger_id, entry_id, entry, index, time_ms)

    def ask(self, messages: int) -> None:
        """See `EntryStream`."""
        self.permits += messages

    def read(self, timeout_s: float) -> EntryColumns:
        """See `EntryStream`."""
        columns, self._columns = self._columns, EntryColumns()
        return columns

    def has_data(self) -> bool:
        """See `EntryStream`."""
        return len(self._columns) > 0

    def fileno(self) -> int:
        """See `EntryStream`."""
        return -1 - self._number

    def acknowledge_soon(self, positions: Sequence[Position]) -> None:
        """See `EntryStream`."""

    def keep(self) -> None:
        """See `EntryStream`."""

    def close(self) -> None:
        """See `EntryStream`."""


class MemoryInputs:
    """The topics of a recording."""

    def __init__(self, plan: InstancePlan) -> None:
        """Each input of the plan is a topic of memory."""
        self.all: list[Source] = []
        self._streams: dict[str, MemoryStream] = {}
        self._entries: dict[str, int] = {}
        self._inputs = {TopicName.parse(each.topic).base: each for each in plan.inputs}
        self.acknowledged = 0
        """Entries that were acknowledged."""
        self.delivered = 0

    def search(self) -> None:
        """See `Inputs`."""

    def put(self, message: RecordedMessage) -> int:
        """A message has come; returns what stands for its descriptor. Raises KeyError for a topic that the
        function does not read."""
        stream = self._stream(message.topic)
        name = str(message.topic)
        number = self._entries.get(name, 0)
        index = message.index if message.index >= 0 else number
        self._entries[name] = max(number, index) + 1
        metadata = pb.MessageMetadata(
            producer_name="recorded", sequence_id=number, publish_time=message.time_ms
        )
        for key, value in message.properties.items():
            metadata.properties.add(key=key, value=value)
        if message.key is not None:
            metadata.partition_key = message.key
        if message.event_time_ms:
            metadata.event_time = message.event_time_ms
        entry = build_entry(metadata, message.payload)
        stream.put(message.ledger_id, message.entry_id, entry, index=index, time_ms=message.time_ms)
        self.delivered += 1
        return stream.fileno()

    def _stream(self, topic: TopicName) -> MemoryStream:
        stream = self._streams.get(str(topic))
        if stream is None:
            given: InputPlan = self._inputs[topic.base]
            stream = self._streams[str(topic)] = MemoryStream(len(self.all))
            self.all.append(Source(len(self.all), topic, given, stream))
        return stream

    def acknowledge(self, entries: Iterable[TakenEntry]) -> None:
        """See `Inputs`."""
        self.acknowledged += len(list(entries))

    def close(self) -> None:
        """See `Inputs`."""


class PublishedMessage(NamedTuple):
    """A message that a function published."""

    topic: str
    output: OutputMessage


class MemoryOutputs:
    """All topics that are written."""

    def __init__(self) -> None:
        self.published: list[PublishedMessage] = []
        self._receipts: list[Done] = []

    @property
    def waits(self) -> bool:
        """See `Outputs`."""
        return bool(self._receipts)

    def filenos(self) -> list[int]:
        """See `Outputs`."""
        return []

    def send(self, topic: str, outputs: Sequence[Output], done: Done) -> int:
        """See `Outputs`."""
        for each in outputs:
            self.published.append(
                PublishedMessage(topic, each if isinstance(each, OutputMessage) else OutputMessage(each))
            )
        self._receipts.append(done)
        return 1

    def send_once(
        self, topic: str, outputs: Sequence[Output], source: Source, entry: TakenEntry, done: Done
    ) -> int:
        """See `Outputs`."""
        refuse_too_many(topic, len(outputs), len(entry.payloads))
        return self.send(topic, outputs, done)

    def collect(self) -> None:
        """See `Outputs`."""
        receipts, self._receipts = self._receipts, []
        for done in receipts:
            done()

    def keep(self) -> None:
        """See `Outputs`."""

    def close(self) -> None:
        """See `Outputs`."""

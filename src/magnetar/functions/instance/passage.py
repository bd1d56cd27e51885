"""Messages on their way through an instance: from its inputs to the receipts of its outputs and the
acknowledgement. Ends, state and time are handed in.

Theory of operation. An entry waits for a number of things: its calls, the receipts of what they published,
the repeated calls of messages that failed. When it waits for nothing, the state is stored, and then it is
acknowledged. A passage lives as long as its connections. When one is lost, the passage is thrown away, and
what was not acknowledged is delivered to the next one.

| Guarantee | Outputs | A message that fails |
|---|---|---|
| at most once | after the acknowledgement | is dropped, and counted |
| at least once, manual | of a stretch of messages together | is called again later; others go on |
| the same, ordered | the same | holds up those behind it |
| effectively once | of one entry together, numbered by its index | holds up those behind it |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.base.closing import Closing
from magnetar.client.deliveries import EntryColumns
from magnetar.functions.errors import UnreadableInputError
from magnetar.functions.instance.batches_in import TakenEntry, opened
from magnetar.functions.instance.batches_out import Output, OutputMessage
from magnetar.functions.instance.call_effects import EntryMessage
from magnetar.functions.instance.counters import InstanceCounters, shortened
from magnetar.functions.instance.endpoints import Ends, Source
from magnetar.functions.instance.outcome import CallOutcome, InFlight, Receipts
from magnetar.functions.instance.plan import AT_MOST_ONCE, MANUAL
from magnetar.functions.instance.preparing import PreparedFunction
from magnetar.functions.instance.retries import FailedMessage, Retries
from magnetar.functions.sdk.message_id import InputMessageId
from magnetar.functions.state.state_change import StateChanges, merge
from magnetar.functions.state.state_file import StateFile
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import entry_layout

_READ_BYTES: Final = 4 << 20
"""Most bytes that are read from a source in one turn."""
STORE_S: Final = 0.1
"""Seconds after which changes of the state are stored although no entry is done."""

Triggered = Callable[[str, bytes | None], None]


class Passage(Closing):
    """One life of an instance's connections."""

    def __init__(
        self,
        function: PreparedFunction,
        ends: Ends,
        counters: InstanceCounters,
        state_file: StateFile | None,
        triggered: Triggered,
    ) -> None:
        """`ends`: where messages come from and go to; `close` ends them. `triggered`: told the results of
        triggered messages."""
        self.function = function
        self.plan = function.plan
        self.clock = function.clock
        self.counters = counters
        self.sources, self.targets = ends
        self.ready: deque[TakenEntry] = deque()
        """Entries whose calls are to come, the first perhaps in part; the permits of the sources bound it."""
        self.row = 0
        """The first message of the first entry whose call is to come."""
        self.retries = Retries(self.plan.retry_ms / 1000, self.plan.retries_max)
        self.held: FailedMessage | None = None
        """The message that holds up those behind it."""
        self.held_until_s = 0.0
        self._in_flight = InFlight(by_source=self.plan.once)
        self._waiting: dict[int, int] = {}
        """Messages in `ready`, by source."""
        self._changes: StateChanges = {}
        """Changes of the state that are not stored, other than with effectively once."""
        self._state_file = state_file
        self._stored_s = self.clock.now_s()
        self._stored_index: dict[int, int] = {}
        self._manual: dict[tuple[str, int, int], TakenEntry] = {}
        """Entries that the function itself acknowledges."""
        self._triggered = triggered
        function.facilities.acknowledged = self._acknowledged
        self._tell_topics()

    def renew(self, function: PreparedFunction) -> None:
        """The function's code was loaded again, and no call is under way. What failed is called at once."""
        self.function = function
        function.facilities.acknowledged = self._acknowledged
        self._tell_topics()
        self.held_until_s = 0.0
        self.retries.hasten()

    def _tell_topics(self) -> None:
        self.function.facilities.topics = [source.name for source in self.sources.all]

    def keep(self) -> None:
        """Tells the brokers that this side is there, while a call lasts. Raises UnreachableError."""
        for source in self.sources.all:
            source.consumer.keep()
        self.targets.keep()

    def close(self) -> None:
        self.sources.close()
        self.targets.close()
        if self.function.state is not None:
            self.function.state.clear()
        self.function.effects.clear()

    # ------------------------------------------------------------ in

    def ask(self) -> None:
        """Gives the brokers permits for what fits. Raises ClientError."""
        if not self.retries.is_full:
            for source in self.sources.all:
                source.ask(self._waiting.get(source.number, 0))

    def filenos(self) -> list[int]:
        """Descriptors that have something to read when there is something to do."""
        return [source.consumer.fileno() for source in self.sources.all] + self.targets.filenos()

    def search(self) -> None:
        """Looks for topics and partitions that are new. Raises ClientError."""
        self.sources.search()
        self._tell_topics()

    def read(self, ready: set[int]) -> None:
        """Takes what has come over these descriptors. Raises ClientError, UnreadableInputError."""
        for source in self.sources.all:
            if source.consumer.fileno() in ready:
                columns = _read_all(source)
                for row in range(len(columns)):
                    place = (
                        columns.ledger_ids[row],
                        columns.entry_ids[row],
                        columns.last_indexes[row],
                        columns.broker_times_ms[row],
                    )
                    self._take(source, columns.entries[row], place)

    def _take(self, source: Source, data: bytes, place: tuple[int, int, int, int]) -> None:
        try:
            entry = opened(source.number, data, place, source.topic)
        except UnreadableInputError as error:
            source.asked -= 1
            self._unreadable(source, data, place, error)
            return
        count = len(entry.payloads)
        source.asked -= count
        self.counters.total.received += count
        plan = self.plan
        self._in_flight.add(entry)
        if plan.once and entry.index <= self._load_reached(source, entry):
            self._in_flight.release(entry)
            return
        if plan.guarantee == AT_MOST_ONCE:
            self.sources.acknowledge([entry])
        elif plan.guarantee == MANUAL or not plan.auto_ack:
            entry.waits += 1
            entry.open_acks = set(range(count))
            self._manual[source.name, entry.ledger_id, entry.entry_id] = entry
        self.ready.append(entry)
        self._waiting[source.number] = self._waiting.get(source.number, 0) + count

    def _load_reached(self, source: Source, entry: TakenEntry) -> int:
        """The index up to which the state has what entries change: then their outputs are stored too; -1:
        none. Raises UnreadableInputError when the entry has no index."""
        if entry.index < 0:
            raise UnreadableInputError(
                f"the broker does not say the index of messages of {source.name}, which EFFECTIVELY_ONCE"
                " needs: switch broker entry metadata on, or use ATLEAST_ONCE"
            )
        if self._state_file is None:
            return -1
        stored = self._stored_index.get(source.number)
        if stored is None:
            stored = self._stored_index[source.number] = self._state_file.position(source.name)
        return stored

    def _unreadable(
        self, source: Source, data: bytes, place: tuple[int, int, int, int], error: UnreadableInputError
    ) -> None:
        """An entry that no function can get: it becomes a dead letter, or stays unacknowledged. Where order
        counts, nothing behind it is taken."""
        self.counters.system_error(str(error), self.clock.now_ms())
        if not self.plan.dead_letters:
            if self.plan.in_order:
                raise error
            return
        payload = data[entry_layout(data)[2] :] if len(data) > 10 else data
        entry = TakenEntry(source.number, place, pb.MessageMetadata(), [payload])
        self._in_flight.add(entry)
        failed = FailedMessage(entry, 0, 0, str(error), str(error))
        self.give_up(failed, None)
        self.release(entry)

    # ------------------------------------------------------------ calls

    def view(self, entry: TakenEntry, row: int) -> EntryMessage:
        """A message as the context shows it."""
        source = self.sources.all[entry.source]
        return self.function.view(entry, row, source.name, source.topic.partition)

    def decoder(self, entry: TakenEntry) -> Callable[[bytes], object] | None:
        """What decodes the entry's payloads; None: nothing."""
        return self.function.decoders[self.sources.all[entry.source].input.topic]

    def outcome(self) -> CallOutcome:
        """For the calls of a stretch."""
        made = CallOutcome()
        made.changes = self._changes
        return made

    def outcome_of(self, entry: TakenEntry) -> CallOutcome:
        """For all calls of an entry, with effectively once."""
        if entry.outcome is None:
            entry.outcome = CallOutcome()
        assert isinstance(entry.outcome, CallOutcome)
        return entry.outcome

    def called(self, entry: TakenEntry, row: int) -> bool:
        """All messages of the first entry before `row` were called; returns whether these are all, and the
        next entry is the first."""
        assert entry is self.ready[0], "calls follow the order of the entries"
        if row < len(entry.payloads):
            self.row = row
            return False
        self.ready.popleft()
        self.row = 0
        self._waiting[entry.source] -= len(entry.payloads)
        return True

    # ------------------------------------------------------------ out

    def emit(self, outcome: CallOutcome, touched: Sequence[TakenEntry]) -> None:
        """Publishes what calls have led to; `touched`: the entries that wait for it. Raises ClientError."""
        self._settle(outcome)
        receipts = Receipts(self._in_flight, touched, outcome.callbacks)
        for topic, outputs in outcome.outputs.items():
            if outputs:
                receipts.expect(self.targets.send(topic, outputs, receipts))
        receipts.begin()

    def emit_entry(self, entry: TakenEntry) -> None:
        """Publishes what an entry has led to, with effectively once. Raises ClientError, BadResultError."""
        outcome = self.outcome_of(entry)
        self._settle(outcome)
        source = self.sources.all[entry.source]
        receipts = Receipts(self._in_flight, (entry,), outcome.callbacks)
        for topic, outputs in outcome.outputs.items():
            if outputs:
                receipts.expect(self.targets.send_once(topic, outputs, source, entry, receipts))
        receipts.begin()
        self.release(entry)

    def _settle(self, outcome: CallOutcome) -> None:
        self.counters.total.processed += outcome.processed
        outcome.processed = 0
        for trigger, value in outcome.triggered:
            self._triggered(trigger, value)
        outcome.triggered.clear()

    def release(self, entry: TakenEntry) -> None:
        """One of the things that the entry waits for has happened."""
        self._in_flight.release(entry)

    def failed(self, failed: FailedMessage, outcome: CallOutcome | None = None) -> bool:
        """A call raised an exception: it will be repeated, or the message is given up. Returns whether it
        holds up those behind it. `outcome`: where a dead letter goes with effectively once."""
        self.counters.user_error(failed.trace, self.clock.now_ms())
        if self.plan.guarantee == AT_MOST_ONCE:
            return False
        if self.retries.is_given_up(failed) and self.plan.dead_letters:
            self.give_up(failed, outcome)
            return False
        now_s = self.clock.now_s()
        if self.plan.in_order:
            self.held = failed
            self.held_until_s = now_s + self.retries.wait_s(failed)
            place = failed.trace.partition("\n")[0]
            self.counters.detail = f"{place} has failed {failed.attempts} times and holds up those behind it"
            return True
        failed.entry.waits += 1
        self.retries.add(failed, now_s)
        return False

    def let_go(self) -> None:
        """The message that held up others was called well."""
        if self.held is not None:
            self.held = None
            self.counters.detail = ""

    def give_up(self, failed: FailedMessage, outcome: CallOutcome | None) -> None:
        """The message becomes a dead letter, with the reason in its properties."""
        letter = self._letter(failed)
        if outcome is not None and self.plan.once:
            outcome.add(self.plan.dead_letters, letter)
            return
        alone = CallOutcome()
        alone.add(self.plan.dead_letters, letter)
        self.emit(alone, (failed.entry,))

    def _letter(self, failed: FailedMessage) -> OutputMessage:
        entry = failed.entry
        view = self.view(entry, failed.row)
        metadata = entry.said_of(failed.row)
        properties = {pair.key: pair.value for pair in metadata.properties}
        properties |= {
            "REAL_TOPIC": view.topic,
            "ORIGIN_MESSAGE_ID": ":".join(map(str, view.message_id())),
            "FUNCTION": self.plan.full_name,
            "ATTEMPTS": str(failed.attempts),
            "EXCEPTION": failed.error[:1000],
            "TRACEBACK": shortened(failed.trace),
        }
        key = metadata.partition_key if metadata.partition_key else None
        return OutputMessage(entry.payloads[failed.row], key, properties, metadata.event_time)

    def log(self, topic: str, records: Sequence[Output]) -> None:
        """Publishes records of the log; nothing waits for them. Raises ClientError."""
        self.targets.send(topic, records, lambda: None)

    # ------------------------------------------------------------ done

    def _acknowledged(self, message_id: InputMessageId, topic: str) -> None:
        entry = self._manual.get((topic, message_id.ledger, message_id.entry))
        if entry is None or entry.open_acks is None:
            return
        entry.open_acks.discard(max(message_id.batch, 0))
        if not entry.open_acks:
            del self._manual[topic, message_id.ledger, message_id.entry]
            self.release(entry)

    def finish(self) -> None:
        """Takes receipts, stores the state of entries that are done, and acknowledges them.

        Raises ClientError, StateFileError.
        """
        self.targets.collect()
        done = self._in_flight.take_done()
        state = self.function.state
        if state is not None and self._state_file is not None:
            if self.plan.once:
                self._store_once(done)
            elif self._changes and (done or self.clock.now_s() - self._stored_s > STORE_S):
                self._state_file.commit(self._changes)
                state.stored(self._changes)
                self._changes = {}
                self._stored_s = self.clock.now_s()
        if done and self.plan.guarantee != AT_MOST_ONCE:
            self.sources.acknowledge(done)

    def _store_once(self, done: Sequence[TakenEntry]) -> None:
        changed = [
            entry for entry in done if isinstance(entry.outcome, CallOutcome) and entry.outcome.changes
        ]
        if not changed:
            return
        assert self._state_file is not None, "the caller has looked"
        assert self.function.state is not None, "the caller has looked"
        merged: StateChanges = {}
        positions: dict[str, int] = {}
        for entry in changed:
            merge(merged, self.outcome_of(entry).changes)
            positions[self.sources.all[entry.source].name] = entry.index
        self._state_file.commit(merged, positions)
        for entry in changed:
            self.function.state.stored(self.outcome_of(entry).changes)

    @property
    def has_unstored(self) -> bool:
        """Whether changes of the state wait until they are stored with an entry, or after `STORE_S`."""
        return bool(self._changes) and self.function.state is not None

    @property
    def is_idle(self) -> bool:
        """Whether no call is to come now and no receipt is missing."""
        return not self.ready and not self.targets.waits and not self._changes


def _read_all(source: Source) -> EntryColumns:
    """What has come for a source, without waiting. Raises ClientError."""
    columns = source.consumer.read(0)
    while columns.size_bytes < _READ_BYTES and source.consumer.has_data():
        columns.extend(source.consumer.read(0))
    return columns

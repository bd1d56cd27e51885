"""How the messages that are ready are called: one by one, in lists, or in windows.

A turn lasts about ten milliseconds, so that acknowledgements, results and questions of the worker do not
wait; one slow call makes it longer.
"""

from __future__ import annotations

from typing import Final, Protocol

from magnetar.functions.instance.batches_in import TakenEntry
from magnetar.functions.instance.call_effects import EntryMessage
from magnetar.functions.instance.outcome import CallOutcome
from magnetar.functions.instance.passage import STORE_S, Passage
from magnetar.functions.instance.retries import FailedMessage
from magnetar.functions.instance.windows import Fired, WindowBuffer

TURN_S: Final = 0.01
IDLE_S: Final = 30.0
"""Most seconds between two turns of an instance without work: a machine may have a thousand of them."""
BATCH_MESSAGES: Final = 1000
"""Messages of a call of a batch function, unless one entry holds more."""


class Work(Protocol):
    """A way to call."""

    def turn(self, passage: Passage) -> None:
        """Calls what is ready. Raises ClientError."""
        ...

    def next_s(self, passage: Passage) -> float:
        """Seconds until there is something to do although nothing comes; 0: now."""
        ...

    def rest(self, passage: Passage) -> bool:
        """New code waits: begins no further call. Returns whether this work can end now."""
        ...

    @property
    def leaves_nothing(self) -> bool:
        """Whether it holds no message: else what is not acknowledged must be delivered again."""
        ...


def wait_s(passage: Passage) -> float:
    """Seconds until a held message or a repeated call is due; `IDLE_S` at most."""
    now = passage.clock.now_s()
    if passage.held is not None:
        return min(IDLE_S, passage.held_until_s - now)
    if passage.ready:
        return 0.0
    if passage.has_unstored:
        return STORE_S
    due = passage.retries.next_s()
    return IDLE_S if due is None else min(IDLE_S, due - now)


class OneByOne:
    """Each message is a call."""

    def turn(self, passage: Passage) -> None:
        """See `Work`."""
        repeat(passage, self._repeated)
        if passage.held is not None and passage.clock.now_s() < passage.held_until_s:
            return
        once = passage.plan.once
        began_s = passage.clock.now_s()
        deadline_s = began_s + TURN_S
        outcome = passage.outcome()
        touched: list[TakenEntry] = []
        ended: list[TakenEntry] = []
        calls = 0
        while passage.ready and passage.clock.now_s() < deadline_s:
            entry = passage.ready[0]
            first = passage.row
            into = passage.outcome_of(entry) if once else outcome
            rows = range(first, len(entry.payloads))
            view = passage.view(entry, first)
            stop = passage.function.caller.rows(entry, view, passage.decoder(entry), rows, deadline_s, into)
            failures, into.failures = into.failures, []
            calls += stop - first
            touched.append(entry)
            if failures and passage.plan.in_order:
                calls += 1
                stop += self._failed_in_order(passage, failures[0], into)
            else:
                passage.let_go()
                for failed in failures:
                    passage.failed(failed)
            if not passage.called(entry, stop):
                break
            ended.append(entry)
            if once:
                passage.emit_entry(entry)
        if calls:
            passage.counters.called(calls, passage.clock.now_s() - began_s, passage.clock.now_ms())
        if not once and touched:
            passage.emit(outcome, touched)
            for entry in ended:
                passage.release(entry)

    def _failed_in_order(self, passage: Passage, failed: FailedMessage, into: CallOutcome) -> int:
        """1 when the message was given up, and the next one is called; else 0."""
        held = passage.held
        if held is not None and held.entry is failed.entry and held.row == failed.row:
            failed.attempts = held.attempts + 1
        passage.held = None
        return 0 if passage.failed(failed, into) else 1

    def _repeated(self, passage: Passage, failed: FailedMessage, into: CallOutcome) -> None:
        entry, row = failed.entry, failed.row
        view = passage.view(entry, row)
        passage.function.caller.rows(entry, view, passage.decoder(entry), range(row, row + 1), 0.0, into)

    def next_s(self, passage: Passage) -> float:
        """See `Work`."""
        return wait_s(passage)

    def rest(self, passage: Passage) -> bool:
        """See `Work`."""
        return True

    @property
    def leaves_nothing(self) -> bool:
        """See `Work`."""
        return True


class Repeated(Protocol):
    """Makes the call for one message that failed before."""

    def __call__(self, passage: Passage, failed: FailedMessage, into: CallOutcome) -> None: ...


def repeat(passage: Passage, call: Repeated) -> None:
    """Calls again for the messages whose pause is over."""
    for failed in passage.retries.due(passage.clock.now_s()):
        into = passage.outcome()
        began_s = passage.clock.now_s()
        call(passage, failed, into)
        passage.counters.called(1, passage.clock.now_s() - began_s, passage.clock.now_ms())
        failures, into.failures = into.failures, []
        passage.emit(into, (failed.entry,))
        for again in failures:
            again.attempts = failed.attempts + 1
            passage.failed(again)
        passage.release(failed.entry)


class InBatches:
    """A list of messages is a call; with effectively once those of one entry."""

    def turn(self, passage: Passage) -> None:
        """See `Work`."""
        repeat(passage, self._repeated)
        if passage.held is not None and passage.clock.now_s() < passage.held_until_s:
            return
        began_s = passage.clock.now_s()
        calls = 0
        while passage.ready and passage.clock.now_s() - began_s < TURN_S:
            calls += self._one(passage)
            if passage.held is not None:
                break
        if calls:
            passage.counters.called(calls, passage.clock.now_s() - began_s, passage.clock.now_ms())

    def _one(self, passage: Passage) -> int:
        once = passage.plan.once
        entries: list[TakenEntry] = []
        places: list[tuple[TakenEntry, int]] = []
        values: list[object] = []
        failures: list[FailedMessage] = []
        into = passage.outcome_of(passage.ready[0]) if once else passage.outcome()
        plain = True
        for entry in passage.ready:
            if entries and (once or len(values) + len(entry.payloads) > BATCH_MESSAGES):
                break
            entries.append(entry)
            plain = plain and entry.plain
            decode = passage.decoder(entry)
            if decode is None:
                values += entry.payloads
                places += [(entry, row) for row in range(len(entry.payloads))]
            else:
                failures += self._decoded(passage, entry, values, places)
        count = len(values) + len(failures)
        if not (failures and passage.plan.in_order):
            caller = passage.function.batch_caller
            caller.messages(values, lambda place: passage.view(*places[place]), plain, into)
        failures += into.failures
        into.failures = []
        if failures and passage.plan.in_order:
            self._hold(passage, failures[0], into)
            return count
        passage.let_go()
        for failed in failures:
            passage.failed(failed)
        if not once:
            passage.emit(into, entries)
        for entry in entries:
            passage.called(entry, len(entry.payloads))
            if once:
                passage.emit_entry(entry)
            else:
                passage.release(entry)
        return count

    def _decoded(
        self, passage: Passage, entry: TakenEntry, values: list[object], places: list[tuple[TakenEntry, int]]
    ) -> list[FailedMessage]:
        """Adds the values of an entry; returns the messages that cannot be decoded."""
        from magnetar.functions.instance.calling import failure

        decode = passage.decoder(entry)
        assert decode is not None, "bytes need no decoding"
        failures = []
        for row, payload in enumerate(entry.payloads):
            try:
                values.append(decode(payload))
                places.append((entry, row))
            except Exception as error:  # noqa: BLE001  # a SerDe of the user's may raise anything
                failures.append(failure(entry, row, error, passage.view(entry, row).topic))
        return failures

    def _hold(self, passage: Passage, failed: FailedMessage, into: CallOutcome) -> None:
        """Where order counts, nothing of the list counts before all of it is well."""
        held = passage.held
        if held is not None and held.entry is failed.entry and held.row == failed.row:
            failed.attempts = held.attempts + 1
        into.outputs.clear()
        into.callbacks.clear()
        into.processed = 0
        passage.counters.user_error(failed.trace, passage.clock.now_ms())
        passage.held = failed
        passage.held_until_s = passage.clock.now_s() + passage.retries.wait_s(failed)

    def _repeated(self, passage: Passage, failed: FailedMessage, into: CallOutcome) -> None:
        entry, row = failed.entry, failed.row
        view = passage.view(entry, row)
        decode = passage.decoder(entry)
        try:
            value = entry.payloads[row] if decode is None else decode(entry.payloads[row])
        except Exception as error:  # noqa: BLE001  # a SerDe of the user's may raise anything
            from magnetar.functions.instance.calling import failure

            into.failures.append(failure(entry, row, error, view.topic))
            return
        passage.function.batch_caller.messages([value], lambda _: view, entry.plain, into)

    def next_s(self, passage: Passage) -> float:
        """See `Work`."""
        return wait_s(passage)

    def rest(self, passage: Passage) -> bool:
        """See `Work`."""
        return True

    @property
    def leaves_nothing(self) -> bool:
        """See `Work`."""
        return True


_Item = tuple[EntryMessage, object]


class InWindows:
    """A window of messages is a call. One that fails is called again after a pause; nothing behind it is."""

    def __init__(self, passage: Passage) -> None:
        assert passage.plan.window is not None, "only functions with windows work so"
        self._buffer: WindowBuffer[_Item] = WindowBuffer(passage.plan.window, passage.clock.now_ms())
        self._fired: list[Fired[_Item]] = []
        self.attempts = 0
        """Calls for the first complete window that failed."""
        self._again_s = 0.0

    def turn(self, passage: Passage) -> None:
        """See `Work`."""
        if self._fired and not self._call(passage):
            return
        deadline_s = passage.clock.now_s() + TURN_S
        while passage.ready and passage.clock.now_s() < deadline_s:
            entry = passage.ready[0]
            for row, payload in enumerate(entry.payloads):
                self._add(passage, entry, row, payload)
            passage.called(entry, len(entry.payloads))
            passage.release(entry)
            if self._fired and not self._call(passage):
                return
        fired = self._buffer.elapsed(passage.clock.now_ms())
        if fired is not None:
            self._fired.append(fired)
        if self._fired:
            self._call(passage)

    def _add(self, passage: Passage, entry: TakenEntry, row: int, payload: bytes) -> None:
        decode = passage.decoder(entry)
        view = passage.view(entry, row)
        try:
            value = payload if decode is None else decode(payload)
        except Exception as error:  # noqa: BLE001  # a SerDe of the user's may raise anything
            from magnetar.functions.instance.calling import failure

            passage.failed(failure(entry, row, error, view.topic))
            return
        entry.waits += 1
        fired = self._buffer.add((view, value), passage.clock.now_ms())
        if fired is not None:
            self._fired.append(fired)

    def _call(self, passage: Passage) -> bool:
        """Calls for the windows that are complete; whether all went well."""
        while self._fired:
            if passage.clock.now_s() < self._again_s:
                return False
            fired = self._fired[0]
            into = passage.outcome()
            began_s = passage.clock.now_s()
            if fired.items:
                view = fired.items[-1][0]
                passage.function.caller.window(view, [value for _, value in fired.items], into)
                passage.counters.called(
                    len(fired.items), passage.clock.now_s() - began_s, passage.clock.now_ms()
                )
            if into.failures:
                failed = into.failures[0]
                self.attempts += 1
                failed.attempts = self.attempts
                passage.counters.user_error(failed.trace, passage.clock.now_ms())
                self._again_s = passage.clock.now_s() + passage.retries.wait_s(failed)
                return False
            self.attempts = 0
            self._fired.pop(0)
            into.processed = len(fired.done)
            touched = [view.entry for view, _ in fired.done]
            passage.emit(into, touched)
            for entry in touched:
                passage.release(entry)
        return True

    def next_s(self, passage: Passage) -> float:
        """See `Work`."""
        if self._fired:
            return max(0.0, min(IDLE_S, self._again_s - passage.clock.now_s()))
        if passage.ready:
            return 0.0
        end_ms = self._buffer.next_ms
        return IDLE_S if end_ms is None else max(0.0, min(IDLE_S, (end_ms - passage.clock.now_ms()) / 1000))

    def rest(self, passage: Passage) -> bool:
        """See `Work`."""
        return True

    @property
    def leaves_nothing(self) -> bool:
        """See `Work`."""
        return not self._fired and not len(self._buffer)

    @property
    def open_messages(self) -> int:
        """Messages of windows that are not complete."""
        return len(self._buffer)

"""What calls have led to: messages to publish, changes of the state, failures (pure)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from magnetar.functions.instance.batches_in import TakenEntry
from magnetar.functions.instance.batches_out import Output
from magnetar.functions.instance.call_effects import Callback, CallEffects
from magnetar.functions.instance.retries import FailedMessage
from magnetar.functions.state.state_change import StateChanges


class CallOutcome:
    """What the calls for a stretch of messages led to; with effectively once, those for one entry."""

    __slots__ = ("callbacks", "changes", "failures", "outputs", "processed", "triggered")

    def __init__(self) -> None:
        self.outputs: dict[str, list[Output]] = {}
        """Messages to publish, by topic."""
        self.callbacks: list[Callback] = []
        """What `Context.publish` shall call when they are stored."""
        self.changes: StateChanges = {}
        self.failures: list[FailedMessage] = []
        self.triggered: list[tuple[str, bytes | None]] = []
        """Results of triggered messages by the trigger's id."""
        self.processed = 0

    def add(self, topic: str, output: Output) -> None:
        """A message to publish."""
        found = self.outputs.get(topic)
        if found is None:
            self.outputs[topic] = [output]
        else:
            found.append(output)

    def publish(self, effects: CallEffects) -> None:
        """What a call that ended well has published by its context."""
        for topic, output, callback in effects.published:
            self.add(topic, output)
            if callback is not None:
                self.callbacks.append(callback)


class InFlight:
    """Entries between their delivery and their acknowledgement."""

    def __init__(self, *, by_source: bool) -> None:
        """`by_source`: entries of a source are done in their order; the stored position speaks for all before
        it."""
        self._by_source = by_source
        self._order: dict[int, deque[TakenEntry]] = {}
        self._done: list[TakenEntry] = []

    def add(self, entry: TakenEntry) -> None:
        """An entry was delivered."""
        if self._by_source:
            self._order.setdefault(entry.source, deque()).append(entry)

    def release(self, entry: TakenEntry, count: int = 1) -> None:
        """`count` of the things that the entry waits for have happened."""
        entry.waits -= count
        assert entry.waits >= 0, "nothing happens twice"
        if not entry.waits and not self._by_source:
            self._done.append(entry)

    def take_done(self) -> list[TakenEntry]:
        """Entries that wait for nothing; each is returned once."""
        if not self._by_source:
            done, self._done = self._done, []
            return done
        done = []
        for waiting in self._order.values():
            while waiting and not waiting[0].waits:
                done.append(waiting.popleft())
        return done

    def clear(self) -> None:
        """Forgets all: they will be delivered again."""
        self._order.clear()
        self._done.clear()


class Receipts:
    """Waits for the receipts of what one stretch of calls published."""

    __slots__ = ("_callbacks", "_in_flight", "_left", "_touched")

    def __init__(
        self, in_flight: InFlight, touched: Sequence[TakenEntry], callbacks: Sequence[Callback]
    ) -> None:
        self._in_flight = in_flight
        self._touched = touched
        self._callbacks = callbacks
        self._left = 1
        for entry in touched:
            entry.waits += 1

    def expect(self, count: int) -> None:
        """`count` more receipts are to come."""
        self._left += count

    def begin(self) -> None:
        """All was sent."""
        self()

    def __call__(self) -> None:
        self._left -= 1
        if not self._left:
            for entry in self._touched:
                self._in_flight.release(entry)
            for callback in self._callbacks:
                callback(None, None)


TRIGGER: Final = "__magnetar_trigger__"
"""Property of a message that a trigger has published: the trigger's id."""

"""How the messages of `async def` functions are called: several at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.functions.instance.async_calling import AsyncCalls, Concluded
from magnetar.functions.instance.batches_in import TakenEntry
from magnetar.functions.instance.call_effects import CallEffects, EntryMessage
from magnetar.functions.instance.outcome import CallOutcome
from magnetar.functions.instance.passage import Passage
from magnetar.functions.instance.working import wait_s

CALLS_MAX: Final = 1000
"""Calls that run at the same time, as `maxPendingAsyncRequests` of Pulsar."""


class OverlappingCalls:
    """Each message is a call; calls overlap, and are concluded in the order of the messages."""

    def __init__(self, passage: Passage, ended: Callable[[], None]) -> None:
        """`ended` is called whenever a call ends."""
        function = passage.function
        self._calls = AsyncCalls(
            function.loaded, function.context, function.caller, count_max=CALLS_MAX, ended=ended
        )
        self._resting = False
        """Whether no call shall begin, because new code waits."""

    def turn(self, passage: Passage) -> None:
        """See `Work`."""
        if passage.held is None:
            self._conclude(passage)
        elif passage.clock.now_s() >= passage.held_until_s:
            held = passage.held
            view = passage.view(held.entry, held.row)
            self._calls.again(held, view, passage.decoder(held.entry), self._effects(passage))
            passage.let_go()
        if self._resting:
            return
        for failed in passage.retries.due(passage.clock.now_s()) if self._calls.room > 0 else ():
            view = passage.view(failed.entry, failed.row)
            decode = passage.decoder(failed.entry)
            self._calls.start(view, decode, self._effects(passage), failed.attempts)
        while passage.ready and self._calls.room > 0:
            entry = passage.ready[0]
            decode = passage.decoder(entry)
            stop = min(len(entry.payloads), passage.row + self._calls.room)
            for row in range(passage.row, stop):
                self._calls.start(passage.view(entry, row), decode, self._effects(passage))
            passage.called(entry, stop)

    def _effects(self, passage: Passage) -> CallEffects:
        return CallEffects(passage.function.state, passage.clock.now_ms)

    def _conclude(self, passage: Passage) -> None:
        once = passage.plan.once
        outcome = passage.outcome()
        touched: dict[int, TakenEntry] = {}
        released: list[TakenEntry] = []
        count = 0
        seconds = 0.0

        def into(view: EntryMessage) -> CallOutcome:
            return passage.outcome_of(view.entry) if once else outcome

        for ended in self._calls.conclude(into):
            entry = ended.view.entry
            count += 1
            seconds += ended.seconds
            touched[id(entry)] = entry
            if ended.failed is not None and passage.failed(ended.failed, into(ended.view)):
                break
            if self._concluded_with(ended, passage):
                if once:
                    passage.emit_entry(entry)
                else:
                    released.append(entry)
        if count:
            passage.counters.called(count, seconds, passage.clock.now_ms())
            if not once:
                passage.emit(outcome, list(touched.values()))
                for entry in released:
                    passage.release(entry)

    def _concluded_with(self, ended: Concluded, passage: Passage) -> bool:
        """Whether one of the things has happened that the entry waits for: the call of a repeated message, or
        the last of its calls."""
        entry = ended.view.entry
        if ended.attempts and not passage.plan.in_order:
            return True
        entry.concluded += 1
        return entry.concluded == len(entry.payloads)

    def next_s(self, passage: Passage) -> float:
        """See `Work`."""
        if passage.ready and not self._calls.room:
            return 1.0
        return wait_s(passage)

    def rest(self, passage: Passage) -> bool:
        """See `Work`. From now on no call begins. Calls behind a message that fails are made again."""
        self._resting = True
        return passage.held is not None or self.leaves_nothing

    @property
    def leaves_nothing(self) -> bool:
        """See `Work`."""
        return not len(self._calls)

    def cancel(self) -> None:
        """Ends all calls: their messages will be delivered again."""
        self._calls.cancel()

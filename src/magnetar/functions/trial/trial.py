"""The course of a trial: messages come at their times, and go the way of an instance. Driver.

Between two messages passes as much time as between their recordings, in no time: what is due meanwhile, a
repeated call or the end of a window, is done at its moment. After the last one time goes on until nothing is
due any more, for a day at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from magnetar.functions.instance.counters import InstanceCounters
from magnetar.functions.instance.endpoints import Ends
from magnetar.functions.instance.instance_clock import InstanceClock
from magnetar.functions.instance.passage import Passage
from magnetar.functions.instance.plan import InstancePlan
from magnetar.functions.instance.preparing import PreparedFunction
from magnetar.functions.instance.running import refuse_impossible
from magnetar.functions.instance.working import InBatches, InWindows, OneByOne, Work
from magnetar.functions.instance.working_async import OverlappingCalls
from magnetar.functions.state.pending_state import PendingState
from magnetar.functions.state.state_file import StateFile
from magnetar.functions.trial.findings import Line, line_of_failure, line_of_message, line_of_state
from magnetar.functions.trial.memory_ends import MemoryInputs, MemoryOutputs, PublishedMessage
from magnetar.functions.trial.recorded import RecordedMessage
from magnetar.runtime.tasks import happens_within, yield_loop
from magnetar.runtime.virtual_time import VirtualTime

FAILED: Final = "persistent://public/default/__failed__"
"""Where messages go that fail, unless the function has retries and dead letters."""
_AFTER_S: Final = 86_400.0
"""Seconds of virtual time after the last message in which what is under way must end."""
_KEYS_MAX: Final = 10_000


@dataclass(slots=True)
class TrialFindings:
    """What a trial has led to."""

    lines: list[Line] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Message and traceback of each call that failed."""
    notes: list[str] = field(default_factory=list)
    """What is left open in the end."""
    stopped: bool = False
    """Whether a message, list or window that fails held up those behind it."""


def tried(plan: InstancePlan, messages: Sequence[RecordedMessage], folder: Path) -> TrialFindings:
    """Calls the function with the messages. `folder`: where its state may be kept meanwhile.

    Raises CodeError, StateFileError; UnreadableInputError, KeyError for a topic that it does not read.
    """
    if plan.retries_max is None and not plan.dead_letter_topic:
        plan = replace(plan, retries_max=0, dead_letter_topic=FAILED)
    passing = VirtualTime(messages[0].time_ms)
    path = folder / "state.sqlite"
    with StateFile(path, passing.now_ms, durable=False) as state_file, passing.governs():
        return _Trial(plan, state_file, passing).run(messages)


class _Trial:
    def __init__(self, plan: InstancePlan, state_file: StateFile, passing: VirtualTime) -> None:
        self._plan = plan
        self._passing = passing
        self._state_file = state_file
        clock = InstanceClock(passing.now_s, passing.now_ms)
        self._function = PreparedFunction(plan, PendingState(state_file), clock)
        refuse_impossible(self._function)
        self._inputs, self._outputs = MemoryInputs(plan), MemoryOutputs()
        self._counters = InstanceCounters()
        self._passage = Passage(
            self._function,
            Ends(self._inputs, self._outputs),
            self._counters,
            state_file,
            lambda trigger, value: None,
        )
        self._work: Work
        self._found = TrialFindings()

    def run(self, messages: Sequence[RecordedMessage]) -> TrialFindings:
        """The whole course."""
        if self._function.loaded.is_async:
            self._passing.run(self._overlapping(messages))
        else:
            if self._plan.window is not None:
                self._work = InWindows(self._passage)
            else:
                self._work = InBatches() if self._function.loaded.is_batch else OneByOne()
            for seconds in self._course(messages):
                self._passing.pass_s(seconds)
        self._tell()
        return self._found

    async def _overlapping(self, messages: Sequence[RecordedMessage]) -> None:
        woken = asyncio.Event()
        self._work = calls = OverlappingCalls(self._passage, woken.set)
        for seconds in self._course(messages):
            await yield_loop()
            if not woken.is_set() and seconds > 0:
                await happens_within(woken, seconds)
            woken.clear()
        calls.cancel()

    def _course(self, messages: Sequence[RecordedMessage]) -> Iterator[float]:
        """Does what is to be done, and yields the seconds until there is more; fewer may pass."""
        for message in messages:
            yield from self._until(message.time_ms)
            descriptor = self._inputs.put(message)
            self._passage.read({descriptor})
            self._turn()
            if self._is_stuck():
                return
        end_s = self._passing.now_s() + _AFTER_S
        while self._is_under_way() and not self._is_stuck():
            left_s = end_s - self._passing.now_s()
            if left_s <= 0:
                self._found.notes.append("a call had not ended a day after the last message")
                return
            due_s = self._due_s()
            yield left_s if due_s is None else min(left_s, due_s)
            self._turn()

    def _until(self, time_ms: int) -> Iterator[float]:
        while not self._is_stuck():
            self._turn()
            left_s = (time_ms - self._passing.now_ms()) / 1000
            if left_s <= 0:
                return
            due_s = self._due_s()
            yield left_s if due_s is None else min(left_s, due_s)

    def _turn(self) -> None:
        self._passage.ask()
        self._work.turn(self._passage)
        self._passage.finish()

    def _due_s(self) -> float | None:
        """Seconds until something is due; None: nothing is."""
        passage, work = self._passage, self._work
        if passage.held is not None:
            return max(0.0, passage.held_until_s - self._passing.now_s())
        if passage.ready:
            # An async function whose calls are all under way waits for one of them.
            return 1.0 if self._function.loaded.is_async else 0.0
        moments = [] if (due_s := passage.retries.next_s()) is None else [due_s - self._passing.now_s()]
        if isinstance(work, InWindows) and work.open_messages and self._plan.window is not None:
            moments.append(work.next_s(passage))
        return max(0.0, min(moments)) if moments else None

    def _is_under_way(self) -> bool:
        work, passage = self._work, self._passage
        if isinstance(work, OverlappingCalls) and not work.leaves_nothing:
            return True
        return bool(passage.ready or self._outputs.waits or passage.held) or self._due_is_certain()

    def _due_is_certain(self) -> bool:
        window = self._plan.window
        of_time = window is not None and window.length_ms > 0
        open_window = of_time and isinstance(self._work, InWindows) and self._work.open_messages > 0
        return open_window or self._passage.retries.next_s() is not None

    def _is_stuck(self) -> bool:
        """Whether a message, list or window failed that would be called again for ever."""
        work, retries_max = self._work, self._plan.retries_max
        if isinstance(work, InWindows):
            return work.attempts > (retries_max or 0)
        held = self._passage.held
        return held is not None and held.attempts > (retries_max or 0)

    def _tell(self) -> None:
        """Results, failures, state and what is left open."""
        for each in self._outputs.published:
            self._found.lines.append(self._line(each))
        self._passage.finish()
        for text, _ in self._counters.user_errors:
            self._found.failures.append(text)
        for key in self._state_file.keys(count_max=_KEYS_MAX):
            value = self._state_file.get(key)
            if value is not None:
                self._found.lines.append(line_of_state(key, value))
        self._found.stopped = self._is_stuck()
        left = self._inputs.delivered - self._inputs.acknowledged
        if self._found.stopped:
            self._found.notes.append("a call that fails holds up what is behind it: the trial ended there")
        elif left:
            open_window = isinstance(self._work, InWindows)
            why = "are in a window that is not complete" if open_window else "were not acknowledged"
            self._found.notes.append(f"{left} of {self._inputs.delivered} messages {why}")

    def _line(self, published: PublishedMessage) -> Line:
        output = published.output
        if published.topic != FAILED:
            return line_of_message(published.topic, output)
        said = output.properties
        return line_of_failure(said["ORIGIN_MESSAGE_ID"], said["EXCEPTION"], output.payload)

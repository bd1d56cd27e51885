"""When broker processes are started, restarted and stopped: the decisions (pure).

Theory of operation. Events come in as calls: a process is ready, has ended, a signal came, time has passed.
What is to be done comes out as effects, which the driver carries out in the order in which they come. Time is
in seconds of any clock that only grows.

Rules:
1. A process that ends by itself is replaced. The first time at once; if it lived for less than 60 s, after 1,
   2, 4 … 30 s. It keeps its number, its ports and so its broker id.
2. A process that ends before it was ever ready, at the start of all, stops all: a wrong setting would be
   wrong again.
3. In a rolling restart one process at a time is stopped, and the next one only when its successor is ready.
   It waits while another process is away.
4. When all are stopped, none is started any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

PAUSES_S: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before a process is started again, by how often it ended early in a row."""
STEADY_S: Final = 60.0
"""A process that lived for so long begins anew with the first pause."""


class ProcessState(Enum):
    """What one of the processes is doing."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"
    """It was told to stop, in a rolling restart or with all others."""
    AWAY = "away"
    """It has ended and will be started at a given time."""
    ENDED = "ended"


TRANSITIONS: Final = {
    ProcessState.STARTING: (
        ProcessState.SERVING,
        ProcessState.STOPPING,
        ProcessState.AWAY,
        ProcessState.ENDED,
    ),
    ProcessState.SERVING: (ProcessState.STOPPING, ProcessState.AWAY),
    ProcessState.STOPPING: (ProcessState.STARTING, ProcessState.ENDED),
    ProcessState.AWAY: (ProcessState.STARTING, ProcessState.ENDED),
    ProcessState.ENDED: (),
}


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Start the process with this number."""

    number: int


@dataclass(frozen=True, slots=True)
class StopProcess:
    """Ask the process to stop. `alone`: the others go on, and get its bundles."""

    number: int
    alone: bool


@dataclass(frozen=True, slots=True)
class Tell:
    """All processes serve, for the first time."""


@dataclass(frozen=True, slots=True)
class Log:
    """Something that operators should know."""

    text: str
    is_warning: bool = False


Effect: TypeAlias = StartProcess | StopProcess | Tell | Log


class _Process:
    __slots__ = ("early_ends", "since_s", "start_at_s", "state")

    def __init__(self, now_s: float) -> None:
        self.state = ProcessState.STARTING
        self.since_s = now_s
        """When it was started."""
        self.start_at_s = 0.0
        self.early_ends = 0


class Supervision:
    """The processes with the numbers from 1 to `count`."""

    def __init__(self, count: int) -> None:
        self.exit_code = 0
        """Exit code of the supervisor, when it is `over`."""
        self.stopping = False
        """Whether all are being stopped."""
        self._count = count
        self._processes: dict[int, _Process] = {}
        self._told = False
        self._waiting: list[int] = []
        """Those that a rolling restart has still to stop."""
        self._restarting = 0
        """The one that a rolling restart waits for; 0: none."""

    @property
    def over(self) -> bool:
        """Whether all have ended and none will be started."""
        return self.stopping and all(each.state is ProcessState.ENDED for each in self._processes.values())

    def state(self, number: int) -> ProcessState:
        """What a process is doing."""
        return self._processes[number].state

    def begin(self, now_s: float) -> list[Effect]:
        """Starts all of them."""
        self._processes = {number: _Process(now_s) for number in range(1, self._count + 1)}
        return [StartProcess(number) for number in self._processes]

    def ready(self, number: int) -> list[Effect]:
        """The process serves clients."""
        process = self._processes[number]
        if process.state is not ProcessState.STARTING:
            return []
        self._turn(number, ProcessState.SERVING)
        effects: list[Effect] = []
        if number == self._restarting:
            self._restarting = 0
            if not self._waiting:
                effects.append(Log(f"all {self._count} processes were restarted"))
        elif self._told:
            effects.append(Log(f"process {number} serves again"))
        if not self._told and self._all_serve:
            self._told = True
            effects.append(Tell())
        return effects + self._go_on()

    def ended(self, number: int, now_s: float, code: int) -> list[Effect]:
        """The process has ended; `code`: its exit code, or minus the number of the signal that ended it."""
        process = self._processes[number]
        if self.stopping:
            self._turn(number, ProcessState.ENDED)
            # A process that could not end in order says why in the log; the first one's code is all's.
            self.exit_code = self.exit_code or max(code, 0)
            return []
        if process.state is ProcessState.STOPPING:
            return self._start(number, now_s)
        if not self._told:
            self._turn(number, ProcessState.ENDED)
            self.exit_code = code if code > 0 else 1
            return [Log(f"process {number} could not start; stopping the others", True), *self.stop()]
        process.early_ends = 0 if now_s - process.since_s >= STEADY_S else process.early_ends + 1
        pause_s = PAUSES_S[min(max(process.early_ends - 1, 0), len(PAUSES_S) - 1)]
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        again = f"in {pause_s:g} s" if pause_s else "at once"
        effects: list[Effect] = [
            Log(f"process {number} has ended with {how}; starting it again {again}", True)
        ]
        self._turn(number, ProcessState.AWAY)
        process.start_at_s = now_s + pause_s
        return effects + self.passed(now_s)

    def passed(self, now_s: float) -> list[Effect]:
        """Time has passed: starts what is due."""
        effects: list[Effect] = []
        for number, process in self._processes.items():
            if process.state is ProcessState.AWAY and process.start_at_s <= now_s:
                effects += self._start(number, now_s)
        return effects

    def due_s(self) -> float | None:
        """When `passed` is to be called; None: not before another event."""
        due = [each.start_at_s for each in self._processes.values() if each.state is ProcessState.AWAY]
        return min(due, default=None)

    def restart(self) -> list[Effect]:
        """Restarts all, one after the other; asked again during that, it begins anew after the present
        one."""
        if self.stopping:
            return []
        self._waiting = [*self._processes]
        return [Log(f"restarting {self._count} processes, one after the other"), *self._go_on()]

    def stop(self) -> list[Effect]:
        """Stops all."""
        if self.stopping:
            return []
        self.stopping = True
        self._waiting, self._restarting = [], 0
        effects: list[Effect] = []
        for number, process in self._processes.items():
            if process.state is ProcessState.AWAY:
                self._turn(number, ProcessState.ENDED)
            elif process.state in (ProcessState.STARTING, ProcessState.SERVING):
                self._turn(number, ProcessState.STOPPING)
                effects.append(StopProcess(number, alone=False))
            elif process.state is ProcessState.STOPPING:
                effects.append(StopProcess(number, alone=False))
        return effects

    @property
    def _all_serve(self) -> bool:
        return all(each.state is ProcessState.SERVING for each in self._processes.values())

    def _go_on(self) -> list[Effect]:
        """The next step of a rolling restart."""
        if not self._waiting or self._restarting or not self._all_serve:
            return []
        self._restarting = number = self._waiting.pop(0)
        self._turn(number, ProcessState.STOPPING)
        return [StopProcess(number, alone=True)]

    def _start(self, number: int, now_s: float) -> list[Effect]:
        self._turn(number, ProcessState.STARTING)
        self._processes[number].since_s = now_s
        return [StartProcess(number)]

    def _turn(self, number: int, state: ProcessState) -> None:
        process = self._processes[number]
        assert state in TRANSITIONS[process.state], f"{process.state.value} cannot become {state.value}"
        process.state = state

    def check(self) -> None:
        """Asserts what must always hold."""
        states = [each.state for each in self._processes.values()]
        if self._restarting:
            assert not self.stopping, "a rolling restart while all are stopped"
        if not self.stopping:
            assert ProcessState.ENDED not in states, "a process is gone for good"
            assert states.count(ProcessState.STOPPING) <= 1, "two processes are stopped at once"

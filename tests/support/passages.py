"""An instance without a broker: a passage between topics of memory, with a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from magnetar.base.names import TopicName
from magnetar.functions.instance.counters import InstanceCounters
from magnetar.functions.instance.endpoints import Ends
from magnetar.functions.instance.instance_clock import InstanceClock
from magnetar.functions.instance.passage import Passage
from magnetar.functions.instance.plan import InputPlan, InstancePlan
from magnetar.functions.instance.preparing import PreparedFunction
from magnetar.functions.instance.working import InBatches, InWindows, OneByOne, Work
from magnetar.functions.state.pending_state import PendingState
from magnetar.functions.state.state_file import StateFile
from magnetar.functions.trial.memory_ends import MemoryInputs, MemoryOutputs
from magnetar.functions.trial.recorded import BEGIN_MS, RecordedMessage
from magnetar.runtime.virtual_time import VirtualTime

IN = "persistent://public/default/in"


class HeldOutputs(MemoryOutputs):
    """Receipts come when they are let."""

    held = False

    def collect(self) -> None:
        if not self.held:
            super().collect()


class PassageBed:
    """A function, its topics and its time."""

    def __init__(self, folder: Path, code: str, *, state: bool = False, **plan: object) -> None:
        """`plan`: fields of InstancePlan."""
        self.file = folder / "code_of_test.py"
        self.file.write_text(code)
        fields: dict[str, object] = {
            "name": "f",
            "class_name": "code_of_test",
            "package": str(self.file),
            "inputs": (InputPlan(topic=IN),),
            "output": "out",
            "subscription": "s",
            "subscription_type": "Shared",
            "service_url": "pulsar://nowhere:1",
            "admin_url": "",
            **plan,
        }
        self.plan = InstancePlan(**fields)  # type: ignore[arg-type]  # the test's own fields
        self.time = VirtualTime(BEGIN_MS)
        self._state_path = folder / "state.sqlite"
        self.state_file = StateFile(self._state_path, self.time.now_ms, durable=False) if state else None
        self.triggered: list[tuple[str, bytes | None]] = []
        self.counters = InstanceCounters()
        self._entries = 0
        self.begin()

    def begin(self) -> None:
        """A new life of the connections: nothing of the one before is there."""
        state = None if self.state_file is None else PendingState(self.state_file)
        clock = InstanceClock(self.time.now_s, self.time.now_ms)
        self.function = PreparedFunction(self.plan, state, clock)
        self.inputs, self.outputs = MemoryInputs(self.plan), HeldOutputs()
        self.passage = Passage(
            self.function,
            Ends(self.inputs, self.outputs),
            self.counters,
            self.state_file,
            lambda trigger, value: self.triggered.append((trigger, value)),
        )
        self.work: Work
        if self.plan.window is not None:
            self.work = InWindows(self.passage)
        else:
            self.work = InBatches() if self.function.loaded.is_batch else OneByOne()

    def put(self, *values: bytes, first: int | None = None, **said: object) -> None:
        """Delivers each value as an entry. `first`: index of the first one, by default the next."""
        for value in values:
            index = self._entries if first is None else first
            first = None if first is None else first + 1
            self._entries = index + 1
            message = RecordedMessage(
                topic=TopicName.parse(IN),
                payload=value,
                time_ms=self.time.now_ms(),
                ledger_id=1,
                entry_id=index,
                index=index,
                **said,  # type: ignore[arg-type]  # the test's own fields
            )
            self.passage.read({self.inputs.put(message)})

    def turn(self, seconds: float = 0.0) -> None:
        """Time passes, and then one turn of the instance."""
        self.time.pass_s(seconds)
        self.work.turn(self.passage)
        self.passage.finish()

    def published(self, topic: str = "out") -> list[bytes]:
        return [each.output.payload for each in self.outputs.published if each.topic == topic]

    @property
    def acknowledged(self) -> int:
        return self.inputs.acknowledged

    def value(self, key: str) -> int | None:
        """The number of a stored counter."""
        assert self.state_file is not None
        found = self.state_file.get(key)
        return None if found is None else found.number

    def close(self) -> None:
        self.passage.close()
        if self.state_file is not None:
            self.state_file.close()


def values(count: int) -> Sequence[bytes]:
    """`count` values: 0, 1, 2, …"""
    return [b"%d" % number for number in range(count)]


Make = Callable[..., PassageBed]
"""Makes a passage of some code; fields of its plan may follow."""

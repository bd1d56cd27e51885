"""The pump of one subscription: reads and sends entries for its dispatcher, in bounded parts (pure).

    idle ──run──▶ sending ──nothing to send, enough for one go, or not now──▶ idle
                     │
                     └──entries are not in memory──▶ reading ──read_ended──▶ idle

However many permits came with one read, other tasks run after a bounded part, and the rest follows in the
next turn (`pump_turns.py`). What takes time comes back from `run` as a step for the driver
(`subscription.py`), which reads from storage or sets an alarm, and then runs the pump again.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, Protocol

from magnetar.base.clock import Clock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import MagnetarError
from magnetar.broker.dispatch.dispatcher import Dispatcher, Want
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.subscription.any_subscription import AttachedConsumer
from magnetar.broker.subscription.dispatchers import amount, tell_end
from magnetar.broker.subscription.pump_turns import PumpTurns
from magnetar.broker.subscription.read_place import ReadPlace, Screen
from magnetar.broker.subscription.tally import Tally

CROWDED_MS_MAX: Final = 1.0
"""Milliseconds of one go while several tenants publish: redelivered messages cost several times what a run
costs. Also with filters, whose work is set by clients."""
PUMP_BYTES_MAX: Final = 2 << 20
"""Bytes sent in one go before other tasks run."""
PUMP_ENTRIES_MAX: Final = 2_000
"""Entries examined in one go: some milliseconds of work, 20 where each needs a decision."""
PUMP_HELD_MAX: Final = 4_096
"""Delayed entries noted in one go: some milliseconds of work."""
CROWDED_ENTRIES_MAX: Final = 100
"""Entries between two readings of the clock while several tenants publish."""


class PumpState(Enum):
    """What a pump does now."""

    IDLE = "idle"
    SENDING = "sending"
    """Within a call of `run`: what asks for it meanwhile is served by that call."""
    READING = "reading"
    """One read at a time; what asks for the pump meanwhile is served when it has ended."""


class StoredRead(NamedTuple):
    """Entries are not in memory: the driver reads them, calls `read_ended`, and hands them to `arrived`."""

    want: Want
    bytes_max: int
    dispatcher: Dispatcher
    """It gets them, if it is still the subscription's."""
    screen: Screen | None
    """The entry filters in force then."""


class RateWait(NamedTuple):
    """Dispatch rates allow nothing now."""

    wait_ms: int
    """Milliseconds until something may be sent."""


class Unreadable(NamedTuple):
    """A read failed. The entries are not passed over: they may be readable after a repair."""

    obstacle: str
    """For people: what could not be read, and why."""
    error: Exception


Step = StoredRead | RateWait | Unreadable
"""What the driver does after a run."""


class Throttle(Protocol):
    """Dispatch rates: `limits/delivering.py` `DispatchThrottle`."""

    def room(self, entries_max: int, bytes_max: int) -> tuple[int, int]: ...
    def sent(self, messages: int, size_bytes: int) -> None: ...
    def wait_ms(self) -> int: ...


class Budget(Protocol):
    """What all connections may have waiting together: `session/outputs.py` `OutputBudget`."""

    crowded: bool

    @property
    def read_bytes(self) -> int: ...


class Pump:
    """The pump of one subscription."""

    __slots__ = ("_budget", "_clock", "_place", "_tally", "_turns", "obstacle", "state", "throttle")

    def __init__(
        self, place: ReadPlace, turns: PumpTurns, tally: Tally, budget: Budget, clock: Clock
    ) -> None:
        self._place = place
        self._turns = turns
        self._tally = tally
        self._budget = budget
        self._clock = clock
        self.throttle: Throttle | None = None
        """None while no dispatch rate is in force."""
        self.state = PumpState.IDLE
        self.obstacle = ""
        """Why the last read failed; empty when it did not."""

    def run(self) -> Step | None:
        """Sends what can be sent now; None: the driver has nothing to do. Total: a failed read is a step."""
        place, turns = self._place, self._turns
        dispatcher = place.dispatcher
        if dispatcher is None or turns.due or self.state is not PumpState.IDLE:
            return None
        log = place.log
        if log.terminated is not None and not place.acks.backlog_entries:
            tell_end(dispatcher.consumers)
        if (
            isinstance(dispatcher, SharedDispatcher)
            and dispatcher.read_position > log.last_position
            and not dispatcher.has_returned
        ):
            # Cheaper than to ask each of many consumers what it wants.
            return None
        self.state = PumpState.SENDING
        try:
            return self._go(dispatcher)
        finally:
            if self.state is PumpState.SENDING:
                self.state = PumpState.IDLE

    def _go(self, dispatcher: Dispatcher) -> Step | None:
        place, throttle = self._place, self.throttle
        sent = entries = 0
        crowded = self._budget.crowded
        reads = place.screen or place.source
        timed = crowded or place.screen is not None
        until_ms = self._clock.monotonic_ms() + CROWDED_MS_MAX if timed else 0.0
        held = place.delays.count
        self.obstacle = ""
        while (want := dispatcher.want()) is not None:
            bytes_max = self._budget.read_bytes
            if crowded:
                want = want._replace(entries_max=min(want.entries_max, CROWDED_ENTRIES_MAX))
            if throttle is not None:
                entries_max, bytes_max = throttle.room(want.entries_max, bytes_max)
                if not entries_max:
                    return RateWait(throttle.wait_ms())
                want = want._replace(entries_max=entries_max)
            try:
                runs = reads.read_now(want.position, bytes_max, want.entries_max)
            except MagnetarError as error:
                return self.failed(want, error)
            if runs is None:
                self.state = PumpState.READING
                return StoredRead(want, bytes_max, dispatcher, place.screen)
            if (skipped := place.log.reading.skipped) is not None:
                runs = skipped.lead(place.cursor, want.position, runs, replay=want.replay)
            if not runs and not want.replay:
                return None
            sent += self._deliver(dispatcher, want, runs)
            entries += sum([len(run.entries) for run in runs])
            much = sent > PUMP_BYTES_MAX or entries > PUMP_ENTRIES_MAX
            much = much or (timed and self._clock.monotonic_ms() > until_ms)
            if much or place.delays.count - held > PUMP_HELD_MAX:
                self._turns.again()
                return None
        return None

    def _deliver(self, dispatcher: Dispatcher, want: Want, runs: list[EntryRun]) -> int:
        sent, now_ms = 0, self._clock.now_ms()
        tally, throttle = self._tally, self.throttle
        for consumer, run, start, stop, redeliveries, ack_sets, rows in dispatcher.offer(want, runs):
            assert isinstance(consumer, AttachedConsumer)
            encoder, out, epoch = consumer.encoder, consumer.connection.out, consumer.epoch
            if rows is None:
                size = encoder.encode(
                    run,
                    start,
                    stop,
                    out,
                    redelivery_counts=redeliveries,
                    ack_sets=ack_sets,
                    consumer_epoch=epoch,
                )
            else:
                size = encoder.encode_rows(run, rows, out, consumer_epoch=epoch)
            consumer.connection.queued(size)
            entries, messages = amount(run.counts, start, stop, rows)
            tally.sent(consumer, entries, messages, size, now_ms)
            sent += size
            if throttle is not None:
                throttle.sent(messages, size)
        return sent

    # -- reads from storage ------------------------------------------------------------------------

    def read_ended(self) -> None:
        """The read of a `StoredRead` ended, whatever came of it."""
        assert self.state is PumpState.READING, "a read ended that was not under way"
        self.state = PumpState.IDLE

    def arrived(self, read: StoredRead, runs: list[EntryRun]) -> None:
        """Sends what a read from storage gave, unless it is not wanted any more."""
        place, want = self._place, read.want
        if (skipped := place.log.reading.skipped) is not None:
            runs = skipped.lead(place.cursor, want.position, runs, replay=want.replay)
        # Entries read for other filters are read again.
        if read.dispatcher is place.dispatcher and read.screen is place.screen and (runs or want.replay):
            self._deliver(read.dispatcher, want, runs)

    def failed(self, want: Want, error: Exception) -> Unreadable:
        """A read failed: nothing is sent until a run that can read."""
        self.obstacle = f"reading at {want.position} failed: {error}"
        return Unreadable(self.obstacle, error)

    def check(self) -> None:
        """Asserts what must always hold."""
        assert self.state is not PumpState.SENDING, "the pump runs within a turn only"
        assert self.state is PumpState.IDLE or not self.obstacle, "it reads and says that it cannot"

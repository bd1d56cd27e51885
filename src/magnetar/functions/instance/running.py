"""The life of an instance: connects, turns, connects again, ends. Driver.

A turn reads what has come, calls, publishes, takes receipts and acknowledges; then the instance waits for
sockets, the worker's line, or a time. A plain function has the one thread of the process, so a debugger stops
it, and its stack is what a stuck instance shows. A second thread does one thing: while a call lasts, it tells
the brokers that this side is there, which otherwise would give its messages to others.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

from magnetar.base.closing import Closing
from magnetar.base.errors import ClientError
from magnetar.client.client import Client
from magnetar.client.options import ClientOptions
from magnetar.functions.errors import (
    BadResultError,
    CodeError,
    NoDeduplicationError,
    StateFileError,
    UnreadableInputError,
)
from magnetar.functions.instance.counters import InstanceCounters
from magnetar.functions.instance.instance_clock import now_ms
from magnetar.functions.instance.links import SEARCH_S, connected, readable
from magnetar.functions.instance.log_topic import LogTopicHandler
from magnetar.functions.instance.losses import Losses
from magnetar.functions.instance.passage import Passage
from magnetar.functions.instance.plan import InstancePlan
from magnetar.functions.instance.preparing import PreparedFunction
from magnetar.functions.instance.working import InBatches, InWindows, OneByOne, Work
from magnetar.functions.instance.working_async import OverlappingCalls
from magnetar.functions.state.pending_state import PendingState
from magnetar.functions.state.state_file import StateFile
from magnetar.runtime import loop as event_loop
from magnetar.runtime.tasks import happens_within
from magnetar.runtime.threads import beside

_log = logging.getLogger("magnetar.functions")

KEEP_S: Final = 10.0
"""Seconds of a call after which the brokers are told that this side is there, again and again."""
_DRAIN_S: Final = 10.0
"""Seconds that receipts may take when an instance ends."""
_RETRY_S: Final = 5.0
"""Seconds in which a call of the broker is repeated before the connections are given up."""
_FAILURES: Final = (
    ClientError,
    StateFileError,
    UnreadableInputError,
    BadResultError,
    NoDeduplicationError,
)


W = TypeVar("W", bound=Work)


class Attendant(Protocol):
    """What an instance turns to between two turns: the worker's line, or the watch of local runs."""

    @property
    def is_over(self) -> bool:
        """Whether the instance shall end."""
        ...

    @property
    def wait_s(self) -> float:
        """Most seconds between two turns."""
        ...

    def filenos(self) -> list[int]:
        """Descriptors that wake the instance."""
        ...

    def attend(self, instance: Instance) -> None:
        """Answers what was asked."""
        ...

    def triggered(self, trigger: str, value: bytes | None) -> None:
        """A triggered message has this result; None: none."""
        ...


class Instance(Closing):
    """One instance of a function."""

    def __init__(self, plan: InstancePlan, attendant: Attendant, client: Client | None = None) -> None:
        """Loads the user's code and opens the state. `client`: of the broker; None: one with the plan's
        addresses and token. Raises CodeError, StateFileError."""
        self.plan = plan
        self.counters = InstanceCounters()
        self._attendant = attendant
        self._state_file = StateFile(Path(plan.state_file)) if plan.state_file else None
        self._state = None if self._state_file is None else PendingState(self._state_file)
        self.function = PreparedFunction(plan, self._state)
        refuse_impossible(self.function)
        self._client = client or _client(plan)
        self._passage: Passage | None = None
        self._renewed: PreparedFunction | None = None
        """New code, which takes the place of the function when no call is under way."""
        self._losses = Losses()
        self._since_s = self._searched_s = time.monotonic()
        self._logs = LogTopicHandler(plan) if plan.log_topic else None
        if self._logs is not None:
            logging.getLogger(plan.full_name).addHandler(self._logs)
        self._keeping = threading.Lock()
        """Held by whichever thread uses the sockets."""
        self._calling = threading.Event()
        """Set during a turn: the second thread sleeps between turns."""

    def renew(self) -> None:
        """Loads the code again. What is called goes on to its end with the old code, and messages after it
        get the new one. Raises CodeError: the old code stays."""
        renewed = PreparedFunction(self.plan, self._state)
        refuse_impossible(renewed)
        renewed.context.metrics = self.function.context.metrics
        self._renewed = renewed

    def publish_to_input(self, topic: str, value: bytes, properties: dict[str, str]) -> None:
        """Publishes to an input topic; for triggers. Raises ClientError."""
        from magnetar.functions.instance.batches_out import OutputMessage

        if self._passage is not None:
            self._passage.targets.send(topic, [OutputMessage(value, None, properties)], lambda: None)

    def close(self) -> None:
        self._end_passage()
        self._client.close()
        if self._state_file is not None:
            self._state_file.close()
        if self._logs is not None:
            logging.getLogger(self.plan.full_name).removeHandler(self._logs)

    # ------------------------------------------------------------ the life

    def run(self) -> None:
        """Runs until the attendant says that it is over; what is under way is finished."""
        keeps = False
        while not self._attendant.is_over:
            if self.function.loaded.is_async:
                event_loop.run(self._run_async())
                continue
            if not keeps:
                keeps = True
                self._keeping.acquire()
                beside(self._keep, name="keeps connections")
            self._run()
        self._finish()

    def _run(self) -> None:
        while not self._attendant.is_over and not self.function.loaded.is_async:
            work = self._started(self._work)
            if work is not None:
                self._turns(work)

    def _work(self, passage: Passage) -> Work:
        if self.plan.window is not None:
            return InWindows(passage)
        return InBatches() if self.function.loaded.is_batch else OneByOne()

    def _started(self, work: Callable[[Passage], W]) -> W | None:
        """Connects, unless the connections are there; None after a pause when that fails."""
        try:
            if self._passage is None:
                self._since_s = self._searched_s = time.monotonic()
                ends = connected(self._client, self.plan)
                self._passage = Passage(
                    self.function, ends, self.counters, self._state_file, self._attendant.triggered
                )
            self.counters.state = "RUNNING"
            self.counters.detail = ""
            return work(self._passage)
        except _FAILURES as error:
            self._lost(error)
            return None

    def _take_new_code(self, work: Work, passage: Passage) -> bool:
        """Replaces the function when new code waits and no call is under way. Returns whether it did: then
        another way to call begins."""
        if self._renewed is None or not work.rest(passage):
            return False
        self.function, self._renewed = self._renewed, None
        if work.leaves_nothing:
            passage.renew(self.function)
        else:
            # Messages of open windows, or behind one that fails, are delivered again.
            self._end_passage()
        return True

    def _turns(self, work: Work) -> None:
        passage = self._passage
        assert passage is not None, "it was started"
        try:
            while not self._attendant.is_over:
                self._begin_turn(passage)
                if self._take_new_code(work, passage):
                    return
                self._calling.set()
                self._keeping.release()
                try:
                    work.turn(passage)
                finally:
                    self._keeping.acquire()
                    self._calling.clear()
                passage.finish()
                passage.ask()
                filenos = passage.filenos() + self._attendant.filenos()
                passage.read(readable(filenos, self._next_s(work, passage)))
        except _FAILURES as error:
            self._lost(error)

    def _next_s(self, work: Work, passage: Passage) -> float:
        """Seconds until there is something to do although nothing comes."""
        if self._attendant.is_over or (self._logs is not None and self._logs.has_any):
            return 0.0
        return min(self._attendant.wait_s, work.next_s(passage))

    def _begin_turn(self, passage: Passage) -> None:
        self.counters.tick(now_ms())
        self._attendant.attend(self)
        if self._logs is not None and (records := self._logs.take()):
            passage.log(self.plan.log_topic, records)
        if time.monotonic() - self._searched_s > SEARCH_S:
            self._searched_s = time.monotonic()
            passage.search()

    def _lost(self, error: Exception) -> None:
        """Connections or the state failed: all begins anew after a pause, in which questions are answered."""
        self._end_passage()
        pause_s, state, said = self._losses.lost(error, time.monotonic() - self._since_s)
        self.counters.system_error(f"{type(error).__name__}: {error}", now_ms())
        self.counters.state = state
        self.counters.detail = said
        _log.warning("%s/%d begins anew in %g s: %s", self.plan.full_name, self.plan.instance, pause_s, said)
        until_s = time.monotonic() + pause_s
        while not self._attendant.is_over and (left := until_s - time.monotonic()) > 0:
            self._attendant.attend(self)
            readable(self._attendant.filenos(), min(left, 0.2))

    def _end_passage(self) -> None:
        if self._passage is not None:
            self._passage.close()
            self._passage = None

    def _finish(self) -> None:
        """Receipts that are missing may come, and their entries are acknowledged."""
        passage = self._passage
        until_s = time.monotonic() + _DRAIN_S
        try:
            while passage is not None and passage.targets.waits and time.monotonic() < until_s:
                passage.finish()
                readable(passage.targets.filenos(), 0.1)
            if passage is not None:
                passage.finish()
        except _FAILURES as error:
            # What has no acknowledgement is delivered again.
            _log.warning(
                "%s/%d ends without all receipts: %s", self.plan.full_name, self.plan.instance, error
            )

    def _keep(self) -> None:
        """The thread that keeps connections while a call lasts."""
        passage: Passage | None = None
        since_s = 0.0
        while True:
            self._calling.wait()
            time.sleep(KEEP_S / 4)
            if not self._keeping.acquire(blocking=False):
                since_s = 0.0
                continue
            try:
                if not since_s or passage is not self._passage:
                    passage, since_s = self._passage, time.monotonic()
                elif passage is not None and time.monotonic() - since_s >= KEEP_S:
                    since_s = time.monotonic()
                    passage.keep()
            except ClientError as error:
                # The next turn meets the lost connection, and begins anew.
                _log.warning("a connection was lost during a call: %s", error)
            finally:
                self._keeping.release()

    # ------------------------------------------------------------ with an event loop

    async def _run_async(self) -> None:
        woken = asyncio.Event()

        def work(passage: Passage) -> OverlappingCalls:
            return OverlappingCalls(passage, woken.set)

        while not self._attendant.is_over and self.function.loaded.is_async:
            started = self._started(work)
            if started is not None:
                await self._turns_async(started, woken)
                started.cancel()

    async def _turns_async(self, work: Work, woken: asyncio.Event) -> None:
        passage = self._passage
        assert passage is not None, "it was started"
        loop = asyncio.get_running_loop()
        watched: set[int] = set()
        try:
            while not self._attendant.is_over:
                self._begin_turn(passage)
                if self._take_new_code(work, passage):
                    return
                work.turn(passage)
                passage.finish()
                passage.ask()
                filenos = {each for each in passage.filenos() + self._attendant.filenos() if each >= 0}
                for each in watched - filenos:
                    loop.remove_reader(each)
                for each in filenos - watched:
                    loop.add_reader(each, woken.set)
                watched = filenos
                await happens_within(woken, max(0.0, self._next_s(work, passage)))
                woken.clear()
                passage.read(readable(filenos, 0.0))
        except _FAILURES as error:
            for each in watched:
                loop.remove_reader(each)
            watched = set()
            self._lost(error)
        finally:
            for each in watched:
                loop.remove_reader(each)


def refuse_impossible(function: PreparedFunction) -> None:
    """Raises CodeError for what cannot be called as the plan wants it."""
    loaded = function.loaded
    if loaded.is_async and (loaded.is_batch or function.plan.window is not None):
        raise CodeError("an async def function takes one message a call: no batches and no windows")


def _client(plan: InstancePlan) -> Client:
    options = ClientOptions(token=plan.token, retry_timeout_s=_RETRY_S)
    return Client(plan.service_url, options, admin_url=plan.admin_url)


def trace_of(error: BaseException) -> str:
    """The whole traceback, for failures that are not the user's."""
    return "".join(traceback.format_exception(error)).rstrip()

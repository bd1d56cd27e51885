"""Calls `check()` of what has states after every step, in tests and simulated runs.

A step is one callback of an event loop; without a loop it is one call from outside. In between things may
disagree for a moment, as a change that concerns two of them is made in one after the other.

Only what a step touched is checked: the objects whose methods it called. The product knows nothing of this
and pays nothing: `install` wraps the methods of the classes in this process.

A story of very many steps, with objects that hold very much, would check for longer than it runs. So objects
of a class that was checked `EACH_STEP` times in a story are checked at every `LATER_STEPS`th step.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, Final, Protocol

CHECKED: Final = (
    "magnetar.bookie.appender:LedgerAppender",
    "magnetar.bookie.commit:CommitQueue",
    "magnetar.bookie.index:BlockRows",
    "magnetar.bookie.network.scattered:ScatteredAppender",
    "magnetar.bookie.segment_store:SegmentStore",
    "magnetar.broker.access.access_state:AccessState",
    "magnetar.broker.canary.canary_state:CanaryState",
    "magnetar.broker.compaction.job:CompactionJob",
    "magnetar.broker.compaction.progress:Progress",
    "magnetar.broker.compaction.topic_compaction:TopicCompaction",
    "magnetar.broker.dedup.dedup_state:DedupState",
    "magnetar.broker.delayed.index:DelayedIndex",
    "magnetar.broker.dispatch.keyshared:KeySharedDispatcher",
    "magnetar.broker.dispatch.shared:SharedDispatcher",
    "magnetar.broker.registry.registry:TopicRegistry",
    "magnetar.broker.session.session:Session",
    "magnetar.broker.subscription.attachments:Attachments",
    "magnetar.broker.subscription.pump:Pump",
    "magnetar.broker.subscription.pump_turns:PumpTurns",
    "magnetar.broker.subscription.read_place:ReadPlace",
    "magnetar.broker.subscription.seek_fence:SeekFence",
    "magnetar.broker.subscription.subscription:Subscription",
    "magnetar.broker.topic.stored_publishing:StoredPublishing",
    "magnetar.broker.topic.subscription_life:SubscriptionLife",
    "magnetar.broker.topic.topic:Topic",
    "magnetar.ledger.quorum.recovery:LedgerRecovery",
    "magnetar.ledger.quorum.quorum_writer:QuorumWriter",
    "magnetar.managedlog.appender:Appender",
    "magnetar.managedlog.cursors.cursor_state:CursorState",
    "magnetar.managedlog.cursors.cursor_store:CursorStore",
    "magnetar.managedlog.cursors.cursor_writes:CursorWrites",
    "magnetar.managedlog.cursors.log_cursors:LogCursors",
    "magnetar.managedlog.ledger_list:LedgerList",
    "magnetar.managedlog.lifecycle:LedgerLifecycle",
    "magnetar.managedlog.log:ManagedLog",
    "magnetar.managedlog.log_life:LogLife",
    "magnetar.managedlog.rollover:Rollover",
    "magnetar.managedlog.tail_cache:TailCache",
    "magnetar.tiered.attempt:OffloadAttempt",
    "magnetar.tiered.pieces:PieceCache",
    "magnetar.tiered.request:OffloadRequest",
)
"""Module and class of everything that has a state and a `check()`."""


EACH_STEP: Final = 1_000
"""Checks of the objects of one class in a story before they are put off."""

LATER_STEPS: Final = 16
"""How many steps they are put off to be checked once."""


class Checked(Protocol):
    """A thing whose parts must agree."""

    def check(self) -> None:
        """Raises AssertionError where they do not."""


class _Steps:
    """What the step under way has touched."""

    def __init__(self) -> None:
        self.touched: dict[int, Checked] = {}
        self.later: dict[int, Checked] = {}
        """What earlier steps touched and was put off."""
        self.depth = 0
        self.failures: list[AssertionError] = []
        self.checks = 0
        self.steps = 0
        self.made: dict[type[Checked], int] = {}
        self.checking = False

    def begin_story(self) -> None:
        """The next step is the first one of another story."""
        self.touched.clear()
        self.later.clear()
        self.made.clear()

    def end(self) -> list[AssertionError]:
        """Checks what was touched; what is wrong."""
        if not self.touched or self.checking:
            return []
        touched, self.touched = self.touched, {}
        self.checking = True
        self.steps += 1
        due = self.steps % LATER_STEPS == 0
        if due and self.later:
            touched = self.later | touched
            self.later = {}
        made = self.made
        wrong = []
        try:
            for number, each in touched.items():
                kind = type(each)
                before = made.get(kind, 0)
                if before >= EACH_STEP and not due:
                    self.later[number] = each
                    continue
                made[kind] = before + 1
                self.checks += 1
                try:
                    each.check()
                except AssertionError as error:
                    wrong.append(error)
        finally:
            self.checking = False
        return wrong


_STEPS: Final = _Steps()
_running_loop: Final = asyncio._get_running_loop
_RUN: Final[Callable[[asyncio.Handle], None]] = asyncio.Handle._run


def _run(handle: asyncio.Handle) -> None:
    """In place of `asyncio.Handle._run`, which every loop but uvloop calls for each callback."""
    _RUN(handle)
    wrong = _STEPS.end()
    if wrong:
        loop = asyncio.get_running_loop()
        for error in wrong:
            context = {"message": f"{error!r} after {handle!r}", "exception": error}
            loop.call_exception_handler(context)
        if not isinstance(getattr(loop, "errors", None), list):
            # A simulated loop tells its story of it. Of others the test is told at its end.
            _STEPS.failures += wrong


def forget() -> None:
    """Drops what a story that was broken off has touched: the next one begins without it."""
    _STEPS.begin_story()


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def waiting(self: Checked, *args: Any, **kwargs: Any) -> Any:
            _STEPS.touched[id(self)] = self
            try:
                return await function(self, *args, **kwargs)
            finally:
                _STEPS.touched[id(self)] = self

        return waiting

    @functools.wraps(function)
    def call(self: Checked, *args: Any, **kwargs: Any) -> Any:
        steps = _STEPS
        if steps.checking:
            return function(self, *args, **kwargs)
        if _running_loop() is not None:
            result = function(self, *args, **kwargs)
            steps.touched[id(self)] = self
            return result
        steps.depth += 1
        try:
            result = function(self, *args, **kwargs)
            # Here: what could not be made, or refused a call, is not as it should be.
            steps.touched[id(self)] = self
        finally:
            steps.depth -= 1
        if not steps.depth:
            wrong = steps.end()
            if wrong:
                raise wrong[0]
        return result

    return call


def classes() -> list[type[Checked]]:
    """Everything that is checked."""
    found = []
    for place in CHECKED:
        module, name = place.split(":")
        found.append(getattr(importlib.import_module(module), name))
    return found


def install() -> None:
    """From here on in this process; a second call does nothing."""
    if asyncio.Handle._run is _run:
        return
    # The one place that every callback goes through.
    asyncio.Handle._run = _run  # type: ignore[assignment,method-assign]  # typeshed names its argument self
    for kind in classes():
        assert callable(kind.check), kind
        for name, function in list(vars(kind).items()):
            if inspect.isfunction(function) and name not in ("check", "__repr__", "__hash__", "__eq__"):
                setattr(kind, name, _wrapped(function))


def failures() -> list[AssertionError]:
    """What was wrong since the last call."""
    found, _STEPS.failures = _STEPS.failures, []
    _STEPS.begin_story()
    return found


def count() -> int:
    """Checks that were made so far."""
    return _STEPS.checks

"""Calls of `async def` functions: several at a time, concluded in the order of their messages.

At most so many calls run at once; a call that waits for a slow answer holds back the results of those behind
it, not the calls. With ordered guarantees a message that fails is called again before anything behind it is
concluded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from magnetar.functions.instance.call_effects import CallEffects, EntryMessage
from magnetar.functions.instance.calling import Decoder, FunctionCaller, failure
from magnetar.functions.instance.loading import LoadedFunction
from magnetar.functions.instance.outcome import CallOutcome
from magnetar.functions.instance.retries import FailedMessage
from magnetar.functions.sdk.context import FunctionContext
from magnetar.runtime.tasks import begin


class _Running:
    """A call under way."""

    __slots__ = ("attempts", "began_s", "effects", "task", "view")

    def __init__(self, view: EntryMessage, effects: CallEffects, attempts: int) -> None:
        self.view = view
        self.effects = effects
        self.attempts = attempts
        """Calls before this one."""
        self.began_s = 0.0
        self.task: asyncio.Task[object]


class Concluded(NamedTuple):
    """A call that has ended."""

    view: EntryMessage
    attempts: int
    """Calls for the message before this one."""
    seconds: float
    """How long it ran, until it was concluded."""
    failed: FailedMessage | None
    """Why it failed; None when it did not."""


class AsyncCalls:
    """The running calls of an instance."""

    def __init__(
        self,
        loaded: LoadedFunction,
        context: FunctionContext,
        caller: FunctionCaller,
        *,
        count_max: int,
        ended: Callable[[], None],
    ) -> None:
        """`caller`: concludes calls. `ended` is called whenever one ends."""
        self._loaded = loaded
        self._context = context
        self._caller = caller
        self._ended = ended
        self._count_max = count_max
        self._running: deque[_Running] = deque()

    def __len__(self) -> int:
        return len(self._running)

    @property
    def room(self) -> int:
        """How many calls may begin."""
        return self._count_max - len(self._running)

    def start(self, view: EntryMessage, decode: Decoder, effects: CallEffects, attempts: int = 0) -> None:
        """Begins a call. `attempts`: calls for this message before."""
        self._running.append(self._begun(_Running(view, effects, attempts), decode))

    def again(self, failed: FailedMessage, view: EntryMessage, decode: Decoder, effects: CallEffects) -> None:
        """Calls once more for the oldest message, which failed; nothing behind it was concluded."""
        self._running.appendleft(self._begun(_Running(view, effects, failed.attempts), decode))

    def _begun(self, call: _Running, decode: Decoder) -> _Running:
        call.began_s = asyncio.get_running_loop().time()
        call.task = begin(self._call(call, decode))
        call.task.add_done_callback(lambda _: self._ended())
        return call

    async def _call(self, call: _Running, decode: Decoder) -> object:
        payload = call.view.entry.payloads[call.view.row]
        value = payload if decode is None else decode(payload)
        work: Awaitable[object]
        if self._loaded.wants_context:
            work = self._loaded.call(value, self._context.for_call(call.view, call.effects))  # type: ignore[assignment]  # its signature says that it is a coroutine
        else:
            work = self._loaded.call(value)  # type: ignore[assignment]  # the same
        return await work

    def conclude(self, into: Callable[[EntryMessage], CallOutcome]) -> Iterator[Concluded]:
        """Takes the calls that have ended, from the oldest on. `into`: where the effects of a message go.

        Where a failure holds up those behind it, it is the last that is taken, and `again` follows it.
        """
        while self._running and self._running[0].task.done():
            call = self._running.popleft()
            seconds = asyncio.get_running_loop().time() - call.began_s
            error = self._error_of(call, into)
            if error is None:
                yield Concluded(call.view, call.attempts, seconds, None)
                continue
            call.effects.clear()
            failed = failure(call.view.entry, call.view.row, error, call.view.topic)
            failed.attempts = call.attempts + 1
            yield Concluded(call.view, call.attempts, seconds, failed)
            if self._caller.stops_at_failure:
                return

    def _error_of(self, call: _Running, into: Callable[[EntryMessage], CallOutcome]) -> BaseException | None:
        """Counts the effects of a call that ended well; else why it did not."""
        if call.task.cancelled():
            return asyncio.CancelledError("the call was cancelled")
        error = call.task.exception()
        if error is not None:
            return error
        try:
            self._caller.conclude(call.view, call.task.result(), call.effects, into(call.view))
        except Exception as wrong:  # noqa: BLE001  # a result that cannot be encoded: the user's error
            return wrong
        return None

    def cancel(self) -> None:
        """Ends all calls: their messages will be delivered again."""
        for call in self._running:
            call.task.cancel()
        self._running.clear()

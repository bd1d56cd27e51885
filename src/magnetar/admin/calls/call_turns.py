"""Gives calls over HTTP the event loop for a few milliseconds of each of its turns, address after address.

A call runs in steps, from one await to the next. Without turns, two hundred expensive calls would all do a
step in the same turn of the loop, and no other client would be served before the last. When the calls of a
turn have used up its time, further steps wait. The addresses then take turns, so that an address with many
calls does not delay an address with a single one.

Within an address, the call that began first and the call that has waited longest alternate. With the first
rule alone, an expensive call would delay all others through the same proxy. With the second alone, all calls
would be half done at the same time, and their partial results would fill the memory.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Final, TypeVar

_T = TypeVar("_T")

TURN_MS: Final = 1.0
"""Milliseconds of a turn that calls may use; the last step may take longer."""
_GO_ON_MAX: Final = 32
"""Most steps of a turn, however short they are."""
_FORGOTTEN: Final = 0.1
"""Share of the difference by which a shorter step lowers the expected duration."""


class CallTurns:
    """The turns of one server."""

    def __init__(self, later: Callable[[Callable[[], None]], None], now_ms: Callable[[], float]) -> None:
        """`later` calls a function in the next turn of the loop; `now_ms` returns monotonic milliseconds."""
        self._later = later
        self._now_ms = now_ms
        self._used_ms = 0.0
        self._expected_ms = 0.0
        """Expected milliseconds of a step: at most as long as the last ones. The order is chosen before a
        step's length is known."""
        self._due = False
        self._calls = 0
        self._oldest = False
        """Whether the last turn went to the call that began first."""
        self._line: dict[str, dict[int, asyncio.Future[None]]] = {}
        """Waiting calls, by address and number of the call; the address with the oldest turn first."""

    @types.coroutine
    def sharing(self, address: str, work: Coroutine[object, object, _T]) -> Generator[object, object, _T]:
        """Wraps work so that each of its steps waits for its turn."""
        self._calls += 1
        number = self._calls
        sent: object = None
        error: BaseException | None = None
        while True:
            if self._line or self._used_ms >= TURN_MS:
                try:
                    yield from self._turn_of(address, number)
                except BaseException as raised:  # noqa: BLE001  # it is the work's: it ends at once
                    error = raised
            began_ms = self._now_ms()
            try:
                waits_for = work.send(sent) if error is None else work.throw(error)
            except StopIteration as end:
                result: _T = end.value
                return result
            finally:
                self._used(self._now_ms() - began_ms)
            sent = error = None
            try:
                sent = yield waits_for
            except BaseException as raised:  # noqa: BLE001  # it is the work's, cancellation too
                error = raised

    def _turn_of(self, address: str, number: int) -> Generator[object, object, None]:
        place = asyncio.get_running_loop().create_future()
        self._line.setdefault(address, {})[number] = place
        self._wake()
        yield from place

    def _used(self, ms: float) -> None:
        self._used_ms += ms
        self._expected_ms = max(ms, self._expected_ms + _FORGOTTEN * (ms - self._expected_ms))
        self._wake()

    def _wake(self) -> None:
        if not self._due:
            self._due = True
            self._later(self._turn)

    def _turn(self) -> None:
        self._due = False
        self._used_ms = 0.0
        left = int(min(_GO_ON_MAX, max(1.0, TURN_MS / max(self._expected_ms, 0.001))))
        while self._line and left:
            address = next(iter(self._line))
            places = self._line.pop(address)
            self._oldest = not self._oldest
            place = places.pop(min(places) if self._oldest else next(iter(places)))
            if places:
                self._line[address] = places
            # A call that was cancelled while it waited is through already.
            if not place.done():
                place.set_result(None)
                left -= 1
        if self._line:
            self._wake()

"""Time that passes as fast as it can: for trials of users' code, where waits take no time.

While `governs` lasts, `time.time`, `time.monotonic`, `time.perf_counter`, their twins in nanoseconds and
`time.sleep` of this process go by it; `asyncio.sleep` and timeouts do on the loop of `run`. `datetime.now` is
not governed: C code asks the system.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Final

_GOVERNED: Final = (
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "sleep",
)


class VirtualTime:
    """Clocks that only `pass_s` moves."""

    def __init__(self, now_ms: int) -> None:
        """`now_ms`: where the wall clock begins, Unix milliseconds."""
        self._began_ns = now_ms * 1_000_000
        self._passed_ns = 0

    def pass_s(self, seconds: float) -> None:
        """Seconds pass; none when it is not positive."""
        if seconds > 0:
            # Rounded up: a wait for a moment must reach it.
            self._passed_ns += -int(-seconds * 1e9 // 1)

    def now_s(self) -> float:
        """Seconds since the beginning."""
        return self._passed_ns / 1e9

    def now_ms(self) -> int:
        """Unix milliseconds."""
        return (self._began_ns + self._passed_ns) // 1_000_000

    def _wall_ns(self) -> int:
        return self._began_ns + self._passed_ns

    @contextmanager
    def governs(self) -> Iterator[None]:
        """The functions of the module `time` go by it."""
        before = {name: getattr(time, name) for name in _GOVERNED}
        ours = {
            "time": lambda: self._wall_ns() / 1e9,
            "time_ns": self._wall_ns,
            "sleep": self.pass_s,
            **dict.fromkeys(("monotonic", "perf_counter"), self.now_s),
            **dict.fromkeys(("monotonic_ns", "perf_counter_ns"), lambda: self._passed_ns),
        }
        try:
            for name, function in ours.items():
                setattr(time, name, function)
            yield
        finally:
            for name, function in before.items():
                setattr(time, name, function)

    def run(self, main: Coroutine[object, object, None]) -> None:
        """Runs `main` on a loop of its own, to its end; when the loop would wait, the time passes."""
        loop = _Loop(self)
        try:
            loop.run_until_complete(main)
        finally:
            loop.close()


class _Selector(selectors.DefaultSelector):
    """Waits for nothing that has a time limit."""

    def __init__(self, passing: VirtualTime) -> None:
        super().__init__()
        self._passing = passing

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        found = super().select(0)
        if not found:
            self._passing.pass_s(timeout)
        return found


class _Loop(asyncio.SelectorEventLoop):
    """An event loop of such a time."""

    def __init__(self, passing: VirtualTime) -> None:
        self._passing = passing
        super().__init__(_Selector(passing))

    def time(self) -> float:
        return self._passing.now_s()

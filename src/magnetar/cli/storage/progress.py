"""Shows the progress of work that takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from typing import Final, TextIO

_QUIET_S: Final = 2.0
_INTERVAL_S: Final = 1.0


class ShownProgress:
    """A line on stderr: a terminal overwrites it; elsewhere a new line follows every ten seconds."""

    def __init__(self, what: str, total: int | None = None, *, stream: TextIO | None = None) -> None:
        """`what`: name of the counted units; `total`: their number, None when unknown."""
        self.done = 0
        self._what = what
        self._total = total
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._began_s = time.monotonic()
        self._next_s = self._began_s + _QUIET_S
        self._shown = False

    def add(self, count: int) -> None:
        """Adds finished units."""
        self.done += count
        if time.monotonic() >= self._next_s:
            self._show()

    def at(self, done: int, total: int) -> None:
        """Sets the finished units and their total; 0: the total is unknown."""
        self._total = total or self._total
        if done > self.done:
            self.add(done - self.done)

    def _show(self) -> None:
        now_s = time.monotonic()
        self._next_s = now_s + (_INTERVAL_S if self._live else 10 * _INTERVAL_S)
        line = self.line(now_s - self._began_s)
        self._stream.write(f"\r{line:<78}" if self._live else f"{line}\n")
        self._stream.flush()
        self._shown = True

    def line(self, elapsed_s: float) -> str:
        """The line after `elapsed_s` seconds."""
        rate = self.done / elapsed_s if elapsed_s > 0 else 0.0
        text = f"{self._what}: {self.done:,}"
        if self._total is not None:
            text += f" of {self._total:,}"
        text += f", {rate:,.0f}/s"
        if self._total is not None and rate > 0:
            text += f", {max(0.0, (self._total - self.done) / rate):,.0f} s left"
        return text

    def close(self) -> None:
        """Ends the line."""
        if self._shown and self._live:
            self._show()
            self._stream.write("\n")

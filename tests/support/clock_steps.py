"""Sets the wall clock of programs under test, and no other clock of theirs, as often as one likes.

A library (clock_steps.c) is loaded before them, and reads from a file how far it is ahead: `ClockSteps`.
Their children, bookies and helpers too, see the same clock. Needs a C compiler, the GNU C library, no root.
"""

from __future__ import annotations

import os
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Final

from support.disk_log import made_of, why_impossible

__all__ = ["ClockSteps", "why_impossible"]

_SOURCE: Final = Path(__file__).with_name("clock_steps.c")
_AHEAD: Final = struct.Struct("q")
HOUR_S: Final = 3600


@cache
def _library() -> Path:
    assert sys.platform == "linux"
    return made_of(_SOURCE)


class ClockSteps:
    """The clock of some programs."""

    def __init__(self, file: Path) -> None:
        """`file`: is created, and holds by how much the clock is ahead."""
        self._file = file
        self.hours = 0.0
        file.write_bytes(_AHEAD.pack(0))

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for a program that uses this clock."""
        return {"LD_PRELOAD": str(_library()), "CLOCK_STEPS": str(self._file)}

    def set(self, hours: float) -> None:
        """Sets the clock ahead of the right time by `hours`; negative: behind."""
        self.hours = hours
        # In place: programs have it in memory.
        with open(self._file, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), _AHEAD.pack(int(hours * HOUR_S)), 0)

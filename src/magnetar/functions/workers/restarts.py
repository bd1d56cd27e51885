"""When an instance that has ended is started again, and what its state is (pure).

Pauses double from a tenth of a second to a minute, and begin anew after it ran for a minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 60.0
STEADY_S: Final = 60.0
"""Seconds of running after which pauses begin anew."""


@dataclass(slots=True)
class Restarts:
    """The restarts of one instance."""

    count: int = 0
    """How often it was started again after it had ended by itself."""
    error: str = ""
    """Why it ended last."""
    _in_a_row: int = 0

    def ended(self, ran_s: float, error: str) -> float:
        """It has ended by itself after so many seconds; returns the seconds until it is started again."""
        if ran_s >= STEADY_S:
            self._in_a_row = 0
        self.error = error
        self.count += 1
        pause_s = min(PAUSE_S_MIN * 2.0 ** min(self._in_a_row, 30), PAUSE_S_MAX)
        self._in_a_row += 1
        return pause_s

    def asked(self) -> None:
        """An operator restarts it: the next start is at once."""
        self._in_a_row = 0


def why(code: int, told: str, stderr: str) -> str:
    """Why a process ended: what it said itself, else its exit code with the end of what it wrote."""
    if told:
        return told
    reason = f"the process was ended by signal {-code}" if code < 0 else f"the process ended with code {code}"
    return f"{reason}\n{stderr}".rstrip()


def users_stack(told: str) -> str:
    """The stack of the thread that calls the function, the innermost frame first, as far as it is the user's;
    all of it when nothing is."""
    current = told.rpartition("Current thread")[2] or told
    frames = [line.strip() for line in current.splitlines() if line.strip().startswith("File ")]
    mine = [line for line in frames if "/magnetar/functions/" not in line and "<frozen " not in line]
    return "\n".join(mine or frames)

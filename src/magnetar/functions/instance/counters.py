"""What an instance counts, and how it tells it (pure). Times are handed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

EXCEPTIONS_MAX: Final = 10
"""Exceptions that are remembered, as in Pulsar."""
TEXT_CHARS_MAX: Final = 8_192
"""Most characters of a remembered exception; the end of a traceback says more than its beginning."""
MINUTE_MS: Final = 60_000


def shortened(text: str) -> str:
    """The text, or its beginning and end."""
    if len(text) <= TEXT_CHARS_MAX:
        return text
    return f"{text[:1000]}\n…\n{text[-(TEXT_CHARS_MAX - 1004) :]}"


@dataclass(slots=True)
class PeriodTally:
    """Counters of a period."""

    received: int = 0
    processed: int = 0
    user_exceptions: int = 0
    system_exceptions: int = 0
    calls: int = 0
    """Calls, or messages of batch functions, that ended, also with an exception."""
    busy_s: float = 0.0
    """Seconds in calls."""

    def average_ms(self) -> float | None:
        """Mean duration of a call per message; None before the first."""
        return self.busy_s * 1000.0 / self.calls if self.calls else None

    def copy(self) -> PeriodTally:
        """The counters of now."""
        return PeriodTally(
            self.received,
            self.processed,
            self.user_exceptions,
            self.system_exceptions,
            self.calls,
            self.busy_s,
        )

    def since(self, before: PeriodTally) -> PeriodTally:
        """What was added after `before`."""
        return PeriodTally(
            self.received - before.received,
            self.processed - before.processed,
            self.user_exceptions - before.user_exceptions,
            self.system_exceptions - before.system_exceptions,
            self.calls - before.calls,
            self.busy_s - before.busy_s,
        )


@dataclass(slots=True)
class InstanceCounters:
    """All that an instance tells of itself."""

    total: PeriodTally = field(default_factory=PeriodTally)
    minute: PeriodTally = field(default_factory=PeriodTally)
    """The last complete minute."""
    last_invocation_ms: int = 0
    user_errors: list[tuple[str, int]] = field(default_factory=list)
    """The last exceptions of the user's code: traceback and Unix milliseconds."""
    system_errors: list[tuple[str, int]] = field(default_factory=list)
    state: str = "STARTING"
    detail: str = ""
    """What it waits for, if it does: a message that fails, or a broker that is away."""
    _minute_began: PeriodTally = field(default_factory=PeriodTally)
    _minute_ms: int = 0

    def called(self, messages: int, seconds: float, now_ms: int) -> None:
        """Calls for so many messages have ended."""
        self.total.calls += messages
        self.total.busy_s += seconds
        self.last_invocation_ms = now_ms

    def user_error(self, text: str, now_ms: int) -> None:
        """The user's code raised an exception."""
        self.total.user_exceptions += 1
        _remember(self.user_errors, text, now_ms)

    def system_error(self, text: str, now_ms: int) -> None:
        """Something else failed: an input, an output, the state."""
        self.total.system_exceptions += 1
        _remember(self.system_errors, text, now_ms)

    def tick(self, now_ms: int) -> None:
        """Time has passed: closes a minute when it is over."""
        if not self._minute_ms:
            self._minute_ms = now_ms
        elif (passed_ms := now_ms - self._minute_ms) >= MINUTE_MS:
            # Nothing was looked at for longer: the last whole minute was one without work.
            idle = passed_ms >= 2 * MINUTE_MS
            self.minute = PeriodTally() if idle else self.total.since(self._minute_began)
            self._minute_began = self.total.copy()
            self._minute_ms = now_ms

    def told(self, user_metrics: Mapping[str, float]) -> dict[str, object]:
        """As it goes to the worker."""
        return {
            "state": self.state,
            "detail": self.detail,
            "total": _told(self.total),
            "minute": _told(self.minute),
            "last_invocation_ms": self.last_invocation_ms,
            "user_errors": list(self.user_errors),
            "system_errors": list(self.system_errors),
            "user_metrics": dict(user_metrics),
        }


def _told(tally: PeriodTally) -> dict[str, object]:
    return {
        "received": tally.received,
        "processed": tally.processed,
        "user_exceptions": tally.user_exceptions,
        "system_exceptions": tally.system_exceptions,
        "average_ms": tally.average_ms(),
    }


def _remember(errors: list[tuple[str, int]], text: str, now_ms: int) -> None:
    errors.append((shortened(text), now_ms))
    del errors[:-EXCEPTIONS_MAX]

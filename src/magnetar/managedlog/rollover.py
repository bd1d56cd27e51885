"""When a log continues in a new ledger (pure)."""

from __future__ import annotations

from typing import Final

from magnetar.base.ids import LedgerId
from magnetar.base.machine import Machine
from magnetar.ledger.api import Copies
from magnetar.managedlog.appender import Appender, LedgerFeed
from magnetar.managedlog.config import ManagedLogConfig
from magnetar.managedlog.log_state import LEDGERS_TRANSITIONS, LedgersState

RETRY_MS: Final = 1000
"""Milliseconds after a failed rollover before the next attempt."""

_SPREAD: Final = 20
"""The ages of ledgers are spread over this fraction of the maximum: otherwise ten thousand logs that were
opened together would all begin a new ledger in one second. Pulsar adds the same 5 % at random."""
_STEPS: Final = 256


def age_max_ms(config: ManagedLogConfig, ledger_id: LedgerId) -> int:
    """Age in milliseconds at which this ledger is left when it is not empty; differs from ledger to
    ledger."""
    return config.rollover_ms_max + config.rollover_ms_max * (ledger_id % _STEPS) // (_SPREAD * _STEPS)


def is_due(config: ManagedLogConfig, *, entries: int, size_bytes: int, age_ms: int) -> bool:
    """Whether a ledger of this size and age is to be left; never an empty one."""
    if not entries:
        return False
    if age_ms >= config.rollover_ms_max:
        return True
    full = entries >= config.entries_max_per_ledger or size_bytes >= config.ledger_bytes_max
    return full and age_ms >= config.rollover_ms_min


class Rollover:
    """Which ledger of a log takes the appends, and whether the next one is due."""

    __slots__ = ("_appender", "_config", "_copies", "_not_before_ms", "_old_at_ms", "clock_wins", "state")

    state: Machine[LedgersState]
    clock_wins: bool
    """The next ledger begins with the clock's time, whatever time the last one has; it is due as soon as this
    one has an entry."""

    def __init__(self, name: str, appender: Appender, config: ManagedLogConfig) -> None:
        """`name` is the log's, for log lines."""
        self.state = Machine(f"ledgers of {name}", LEDGERS_TRANSITIONS, LedgersState.BEGINNING)
        self.clock_wins = False
        self._appender = appender
        self._config = config
        self._copies = config.copies
        self._old_at_ms = 0
        self._not_before_ms = 0.0

    @property
    def stopped(self) -> bool:
        """Whether no further ledger follows."""
        return self.state.now in (LedgersState.STOPPED, LedgersState.ENDED)

    @property
    def beginning(self) -> bool:
        """Whether no ledger takes appends yet: the log is being opened."""
        return self.state.now is LedgersState.BEGINNING

    @property
    def copies(self) -> Copies | None:
        """How many bookies hold the ledgers that begin from now on; None: the process's default."""
        return self._copies

    @copies.setter
    def copies(self, copies: Copies | None) -> None:
        self._copies = copies
        current = self._appender.current
        if current is not None and copies != current.copies:
            # The next append leaves a ledger with another number of copies.
            self._old_at_ms = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether the ledger is to be left at this time, Unix ms; called at each append."""
        appender, config = self._appender, self._config
        feed = appender.current
        if feed is None:
            return False
        ledger = feed.ledger
        size_bytes = ledger.size_bytes + appender.pending_bytes
        if (
            now_ms < self._old_at_ms
            and not self.clock_wins
            and feed.next_entry < config.entries_max_per_ledger
            and size_bytes < config.ledger_bytes_max
        ):
            return False
        return (
            feed.copies != self._copies
            or self.clock_wins
            or is_due(
                config, entries=feed.next_entry, size_bytes=size_bytes, age_ms=now_ms - ledger.created_ms
            )
        )

    def begin(self, monotonic_ms: float) -> bool:
        """Whether the next ledger can be created at this time of the monotonic clock; if so, that has begun.

        One at a time, not while the previous ledger is not durable to its end, and not soon after a failure.
        """
        steady = self.state.now is LedgersState.STEADY
        if not steady or self._appender.draining or monotonic_ms < self._not_before_ms:
            return False
        self.state.go(LedgersState.ROLLING, "a ledger is full, old, or to be left")
        return True

    def failed(self, monotonic_ms: float) -> None:
        """The next ledger could not be created."""
        self._not_before_ms = monotonic_ms + RETRY_MS

    def over(self) -> None:
        """The creation has ended, with or without success; `stop` may have come in between."""
        if self.state.now is LedgersState.ROLLING:
            self.state.go(LedgersState.STEADY, "the rollover has ended")

    def used(self, feed: LedgerFeed) -> None:
        """This ledger takes the appends now."""
        if self.beginning:
            self.state.go(LedgersState.STEADY, "the first ledger")
        assert feed is self._appender.current, "another ledger takes the appends"
        assert not self.stopped, "a ledger follows though none should"
        if self.clock_wins:
            self.clock_wins = False
            self._appender.times.believe()
        self._old_at_ms = feed.ledger.created_ms + age_max_ms(self._config, feed.ledger.ledger_id)

    def stop(self, why: str) -> None:
        """No ledger follows from here on; `why` is for log lines."""
        if not self.stopped:
            self.state.go(LedgersState.STOPPED, why)

    def check(self) -> None:
        """Asserts the invariants."""
        current, now = self._appender.current, self.state.now
        assert not self.beginning or current is None, "appends before the ledger is listed"
        assert now is not LedgersState.ENDED or current is None, "appends after the end"
        assert now not in (LedgersState.STEADY, LedgersState.ROLLING) or current is not None, "no ledger"

"""When the auditor audits the ledgers of lost bookies. Pure.

One lost bookie is waited for: it may be restarting, and copying its ledgers is expensive. For two at a time
there is no wait. Setting the delay, even to the same value, requests an audit at once.

Each loss is audited twice. A client may choose a bookie just before it is lost; the audit passes the place of
the ledger; then the ledger is created. The auditor learns of no event for it.

Source: BookKeeper's Auditor, lostBookieRecoveryDelay. It has no second audit: such a ledger waits for the
daily one.
"""

from __future__ import annotations

from typing import Final

LOOK_AGAIN_S: Final = 30.0
"""Seconds from an audit to the second one: a session's default timeout. A client that works with an older
list of bookies for longer has no connection to the metadata, so it creates no ledger there."""


class AuditSchedule:
    """Decides when an audit is due. Times are seconds of a monotonic clock."""

    def __init__(self, delay_s: float, look_again_s: float = LOOK_AGAIN_S) -> None:
        """`look_again_s`: from an audit to the second one."""
        self._delay_s = delay_s
        self._look_again_s = look_again_s
        self._lost: frozenset[str] = frozenset()
        self._due_s: float | None = None
        self._again_s: float | None = None
        """When the second audit is due; None without one."""
        self._is_second = False
        """Whether the last audit that was begun is a second one."""
        self.delayed = 0
        """Audits delayed for a lost bookie."""
        self.called_off = 0
        """Delayed audits that were not needed in the end."""

    @property
    def due_s(self) -> float | None:
        """When the next audit is due; None: not before something changes."""
        return min((at_s for at_s in (self._due_s, self._again_s) if at_s is not None), default=None)

    def lost(self, bookies: frozenset[str], now_s: float) -> None:
        """These bookies are known and not registered now."""
        news = bookies - self._lost
        self._lost = bookies
        if news or not bookies:
            # A second audit marks the ledgers of all bookies lost by then, also of one that is still waited
            # for.
            self._again_s = None
        if not bookies:
            self.called_off += self._due_s is not None
            self._due_s = None
        elif len(bookies) > 1 or self._delay_s <= 0:
            if news:
                self._due_s = now_s
        elif news:
            self.delayed += 1
            self._due_s = now_s + self._delay_s

    def delay_set(self, delay_s: float, now_s: float) -> None:
        """The delay was set."""
        same, self._delay_s = delay_s == self._delay_s, delay_s
        if same or (self._due_s is not None and delay_s <= 0):
            self._due_s = now_s
        elif self._due_s is not None and len(self._lost) == 1:
            self._due_s = now_s + delay_s

    def take_due(self, now_s: float) -> bool:
        """Whether an audit is due now; if so, it counts as begun."""
        if self._due_s is not None and now_s >= self._due_s:
            self._due_s = None
            self._is_second = False
            return True
        if self._again_s is not None and now_s >= self._again_s:
            self._again_s = None
            self._is_second = True
            return True
        return False

    def done(self, now_s: float) -> None:
        """The audit begun at `now_s` succeeded."""
        if self._lost and not self._is_second:
            self._again_s = now_s + self._look_again_s

    def failed(self, again_s: float) -> None:
        """The audit that was begun failed."""
        if self._due_s is None:
            self._due_s = again_s

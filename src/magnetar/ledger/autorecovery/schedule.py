"""When the auditor looks after ledgers of lost bookies. Pure.

One lost bookie is waited for: it may be restarting, and copying its ledgers costs much. Two at a time are
not. Setting the time that is waited, also to the same value, asks for an audit now.

Source: BookKeeper's Auditor, lostBookieRecoveryDelay.
"""

from __future__ import annotations


class AuditSchedule:
    """Says when an audit is due. Times are seconds of any clock that goes on."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._lost: frozenset[str] = frozenset()
        self._due_s: float | None = None
        self.delayed = 0
        """Audits that were put off for a lost bookie."""
        self.called_off = 0
        """Those that were not needed in the end."""

    @property
    def due_s(self) -> float | None:
        """When the next audit is due; None: not before something changes."""
        return self._due_s

    def lost(self, bookies: frozenset[str], now_s: float) -> None:
        """These are known and not there now."""
        news = bookies - self._lost
        self._lost = bookies
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
        """Somebody has set the delay."""
        same, self._delay_s = delay_s == self._delay_s, delay_s
        if same or (self._due_s is not None and delay_s <= 0):
            self._due_s = now_s
        elif self._due_s is not None and len(self._lost) == 1:
            self._due_s = now_s + delay_s

    def take_due(self, now_s: float) -> bool:
        """Whether an audit is due now; then it counts as begun."""
        if self._due_s is None or now_s < self._due_s:
            return False
        self._due_s = None
        return True

    def failed(self, again_s: float) -> None:
        """The audit that was begun did not come to its end."""
        if self._due_s is None:
            self._due_s = again_s

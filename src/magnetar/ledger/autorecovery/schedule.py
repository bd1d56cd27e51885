"""When the auditor looks after ledgers of lost bookies. Pure.

One lost bookie is waited for: it may be restarting, and copying its ledgers costs much. Two at a time are
not. Setting the time that is waited, also to the same value, asks for an audit now.

Who was lost is looked after twice. A client chooses bookies, the one that was just lost among them; the audit
passes where the ledger will be; the ledger is written. Nothing tells the auditor of it.

Source: BookKeeper's Auditor, lostBookieRecoveryDelay. It has no second look: such a ledger waits for the
daily one.
"""

from __future__ import annotations

from typing import Final

LOOK_AGAIN_S: Final = 30.0
"""From an audit to the second look: a session's default timeout. A client that knows an older list of bookies
for longer has no connection to metadata, so it writes no ledger there."""


class AuditSchedule:
    """Says when an audit is due. Times are seconds of any clock that goes on."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._lost: frozenset[str] = frozenset()
        self._due_s: float | None = None
        self._again_s: float | None = None
        """When the second look is due."""
        self._is_second = False
        """Whether the audit that was begun last is a second look."""
        self.delayed = 0
        """Audits that were put off for a lost bookie."""
        self.called_off = 0
        """Those that were not needed in the end."""

    @property
    def due_s(self) -> float | None:
        """When the next audit is due; None: not before something changes."""
        return min((at_s for at_s in (self._due_s, self._again_s) if at_s is not None), default=None)

    def lost(self, bookies: frozenset[str], now_s: float) -> None:
        """These are known and not there now."""
        news = bookies - self._lost
        self._lost = bookies
        if news or not bookies:
            # A second look marks what everybody held who is lost by then, also who is still waited for.
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
        """Somebody has set the delay."""
        same, self._delay_s = delay_s == self._delay_s, delay_s
        if same or (self._due_s is not None and delay_s <= 0):
            self._due_s = now_s
        elif self._due_s is not None and len(self._lost) == 1:
            self._due_s = now_s + delay_s

    def take_due(self, now_s: float) -> bool:
        """Whether an audit is due now; then it counts as begun."""
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
        """The audit that was begun at `now_s` came to its end."""
        if self._lost and not self._is_second:
            self._again_s = now_s + LOOK_AGAIN_S

    def failed(self, again_s: float) -> None:
        """The audit that was begun did not come to its end."""
        if self._due_s is None:
            self._due_s = again_s

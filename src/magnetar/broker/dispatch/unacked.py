"""How much of a subscription may be unacknowledged, over all its consumers.

Source: Pulsar's `maxUnackedMessagesPerSubscription`: dispatch stops when the sum reaches the limit and goes
on once it is below half of it.
"""

from __future__ import annotations

from typing import Final

UNACKED_MESSAGES_MAX_SHARED: Final = 200_000
"""Messages that a Shared or Key_Shared subscription may hold unacknowledged (Pulsar's default)."""
_NO_LIMIT: Final = 1 << 62


class UnackedLimit:
    """Counts what is sent and not acknowledged, and latches at the limit."""

    __slots__ = ("blocked", "maximum", "total")

    def __init__(self) -> None:
        self.total = 0
        """Messages sent and not acknowledged."""
        self.maximum = UNACKED_MESSAGES_MAX_SHARED
        """Messages; 0: without limit."""
        self.blocked = False
        """Whether nothing more is sent until half of the limit is free."""

    @property
    def room(self) -> int:
        """Messages that may be sent now; many when there is no limit."""
        if self.blocked:
            return 0
        return self.maximum - self.total if self.maximum else _NO_LIMIT

    def sent(self, messages: int) -> None:
        """So many more messages are unacknowledged."""
        self.total += messages
        if 0 < self.maximum <= self.total:
            self.blocked = True

    def released(self, messages: int) -> None:
        """So many messages were acknowledged or given back."""
        self.total -= messages
        if self.blocked and self.total < self.maximum / 2:
            self.blocked = False

    def limit(self, maximum: int) -> None:
        """Sets the limit, in messages; 0: none. Blocks or frees at once what it must."""
        self.maximum = maximum
        held = self.total >= (maximum / 2 if self.blocked else maximum)
        self.blocked = maximum > 0 and held

    def clear(self) -> None:
        """Nothing is unacknowledged any more."""
        self.total = 0
        self.blocked = False

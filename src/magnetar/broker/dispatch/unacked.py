"""Bounds on unacknowledged messages, per subscription over all its consumers, and over all subscriptions.

Source: Pulsar's `maxUnackedMessagesPerSubscription`: dispatch stops when the sum reaches the limit and
continues once it is below half of it. `maxUnackedMessagesPerBroker`, over all subscriptions: above it those
stop that hold more than `maxUnackedMessagesPerSubscriptionOnBrokerBlocked` of it, each until it holds less
than half of its part, all until the sum is below half of the limit. Pulsar checks every 30 seconds; here each
change is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

UNACKED_MESSAGES_MAX_SHARED: Final = 200_000
"""Messages that a Shared or Key_Shared subscription may hold unacknowledged (Pulsar's default)."""
_NO_LIMIT: Final = 1 << 62


class UnackedOfBroker:
    """Counts over all subscriptions of a broker."""

    __slots__ = ("_large", "blocked", "maximum", "part", "total")

    def __init__(self, maximum: int, part: int) -> None:
        """`maximum`: messages over all subscriptions; `part`: those that one may hold above that. Both from
        1."""
        self.maximum = maximum
        self.part = part
        self.total = 0
        self.blocked = False
        """Whether there were more than `maximum`, and half of it is not free yet."""
        self._large: dict[UnackedLimit, None] = {}
        """Subscriptions that hold more than their part, or did when they were stopped."""

    def changed(self, limit: UnackedLimit, messages: int) -> None:
        """A subscription holds this many more messages, or fewer."""
        self.total += messages
        if limit.total > self.part:
            self._large[limit] = None
            if self.blocked:
                limit.hold()
        elif not limit.held or limit.total < self.part / 2:
            self._large.pop(limit, None)
            limit.let_go()
        if self.blocked:
            if self.total < self.maximum / 2:
                self.blocked = False
                for each in self._large:
                    each.let_go()
        elif self.total > self.maximum:
            self.blocked = True
            for each in self._large:
                each.hold()


class UnackedLimit:
    """Counts what is sent and not acknowledged, and latches at the limit."""

    __slots__ = ("_broker", "_latched", "_wake", "blocked", "held", "maximum", "total")

    def __init__(self) -> None:
        self.total = 0
        """Messages sent and not acknowledged."""
        self.maximum = UNACKED_MESSAGES_MAX_SHARED
        """Messages; 0: without limit."""
        self.blocked = False
        """Whether nothing more is sent: until half of the limit is free, or while the broker holds it."""
        self.held = False
        """Whether the broker has too many, and this subscription more than its part."""
        self._latched = False
        self._broker: UnackedOfBroker | None = None
        self._wake: Callable[[], None] | None = None

    @property
    def room(self) -> int:
        """Messages that may be sent now; many when there is no limit."""
        if self.blocked:
            return 0
        return self.maximum - self.total if self.maximum else _NO_LIMIT

    @property
    def of_broker(self) -> UnackedOfBroker | None:
        """The bound over all subscriptions; None: there is none."""
        return self._broker

    def join(self, broker: UnackedOfBroker | None, wake: Callable[[], None]) -> None:
        """Joins the broker's bound, if there is one; before any message is sent. `wake` is called when
        dispatch was stopped and may continue."""
        self._broker, self._wake = broker, wake

    def hold(self) -> None:
        """The broker has too many."""
        self.held = self.blocked = True

    def let_go(self) -> None:
        """The broker holds it no more."""
        if self.held:
            self.held = False
            self.blocked = self._latched
            if self._wake is not None:
                self._wake()

    def sent(self, messages: int) -> None:
        """This many more messages are unacknowledged."""
        self.total += messages
        if 0 < self.maximum <= self.total:
            self._latched = self.blocked = True
        if self._broker is not None:
            self._broker.changed(self, messages)

    def released(self, messages: int) -> None:
        """This many messages were acknowledged or returned."""
        self.total -= messages
        if self._latched and self.total < self.maximum / 2:
            self._latched = False
            self.blocked = self.held
        if self._broker is not None:
            self._broker.changed(self, -messages)

    def limit(self, maximum: int) -> None:
        """Sets the limit, in messages; 0: none. Blocks or frees at once what it must."""
        self.maximum = maximum
        reached = self.total >= (maximum / 2 if self._latched else maximum)
        self._latched = maximum > 0 and reached
        self.blocked = self._latched or self.held

    def clear(self) -> None:
        """Nothing is unacknowledged any more."""
        self._latched = False
        self.blocked = self.held
        self.released(self.total)

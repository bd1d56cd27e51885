"""The state of a subscription at one moment: the input of `reasons.diagnose`."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.dispatch.dispatcher import HashLine


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerView:
    """One attached consumer."""

    name: str
    permits: int = 0
    unacked: int = 0
    unacked_max: int = 0
    """0: without limit."""
    blocked: bool = False
    """Whether the limit holds it, from the limit on until half of it is free."""
    writable: bool = True
    """Whether its connection accepts more bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One subscription."""

    stored: bool = True
    """Whether the topic keeps what cannot be sent now."""
    topic_closed: bool = False
    topic_state: str = "open"
    """State of the topic's log."""
    terminated: bool = False
    consumers: tuple[ConsumerView, ...] = ()
    active: str | None = None
    """The active consumer of an Exclusive or Failover subscription."""
    single: bool = False
    """Whether only the active consumer gets messages."""
    backlog: int = 0
    """Entries that are not acknowledged."""
    unread: int = 0
    """Stored entries that were not read for the consumers yet, and may be."""
    held: int = 0
    """Stored entries behind those, which wait until a transaction has ended."""
    held_by: str = ""
    """The transaction, as `(coordinator,number)`; "": none holds readers back."""
    again: int = 0
    """Returned or due entries that are to be sent."""
    waiting: int = 0
    """Entries that were read and wait in lines for their keys (Key_Shared)."""
    line_full: bool = False
    """Whether the lines are so long that reading stops."""
    can_serve_line: bool = False
    """Whether the first entry of some line could be sent now."""
    sticky: bool = False
    """Whether consumers name their ranges of hashes (Key_Shared)."""
    out_of_order: bool = False
    """Whether entries of one key may be at two consumers (Key_Shared)."""
    draining: tuple[HashLine, ...] = ()
    """Some of the hashes that wait, at most a handful."""
    delayed: int = 0
    """Delayed entries that are not due."""
    delayed_until_ms: int | None = None
    """The next delivery time, Unix ms."""
    unacked: int = 0
    """Messages unacknowledged over all consumers (Shared, Key_Shared)."""
    unacked_max: int = 0
    """0: without limit."""
    blocked: bool = False
    """Whether the limit of the subscription or of the broker holds it."""
    unacked_of_broker: int = 0
    """Messages unacknowledged over all subscriptions while that holds this one; 0: it does not."""
    unacked_part: int = 0
    """What this one may hold then."""
    rate_wait_ms: int = 0
    """Until the dispatch rate lets something through."""
    reading: bool = False
    obstacle: str = ""
    """Why the last read failed; empty when it did not."""
    now_ms: int = 0

    @property
    def due(self) -> bool:
        """Whether a delayed entry is due."""
        return self.delayed > 0 and self.delayed_until_ms is not None and self.delayed_until_ms <= self.now_ms

"""One attached consumer, as the dispatchers see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from magnetar.base.ids import ConsumerId, Position

UNACKED_MESSAGES_MAX: Final = 50_000
"""Messages a Shared or Key_Shared consumer may hold unacknowledged (Pulsar's default)."""


class ConsumerOutlet(Protocol):
    """Receives a consumer's messages: its connection."""

    @property
    def writable(self) -> bool:
        """Whether it accepts more now. Changes are not announced."""

    def ask_output(self) -> bool:
        """The same; and when it does not, `subscription.pump` is called as soon as it does."""


@dataclass(frozen=True, slots=True)
class Pending:
    """An entry that was sent and not acknowledged."""

    messages: int
    """Messages of the entry that were unacknowledged when it was sent."""
    key_hash: int = 0
    """Sticky hash of the entry (Key_Shared); 0 elsewhere."""


@dataclass(slots=True, eq=False)
class Consumer:
    """State of one consumer of a subscription. Changed by its dispatcher only."""

    consumer_id: ConsumerId
    """Chosen by the client, unique on its connection."""
    name: str
    outlet: ConsumerOutlet
    priority: int = 0
    """0 is served first."""
    permits: int = 0
    """Messages that the client has asked for and not been sent; may be negative by one batch."""
    unacked: int = 0
    """Messages sent and not acknowledged (Shared and Key_Shared; 0 otherwise)."""
    pending: dict[Position, Pending] = field(default_factory=dict)
    """Entries sent and not acknowledged (Shared and Key_Shared; empty otherwise)."""
    epoch: int | None = None
    """Consumer epoch of Exclusive and Failover consumers that use one."""
    hash_ranges: tuple[tuple[int, int], ...] = ()
    """Sticky ranges, both ends inclusive (Key_Shared STICKY)."""
    unacked_max: int = UNACKED_MESSAGES_MAX
    """Messages; 0: without limit. Shared and Key_Shared keep it."""
    blocked: bool = False
    """Whether too much is unacknowledged to send more: from the limit on, until half of it is free."""
    messages_out: int = 0
    bytes_out: int = 0
    entries_out: int = 0
    redelivered: int = 0
    """Messages that it gave back to get them again."""
    acks: int = 0
    """Messages that it acknowledged."""
    acked_ms: int = 0
    """When it did so last, Unix ms, 0: never; so the next ones."""
    sent_ms: int = 0
    first_sent_ms: int = 0
    flow_ms: int = 0
    """When it last asked for messages."""
    first_flow_ms: int = 0

    def ask_output(self) -> bool:
        """Whether an entry may be sent now; if only its connection stops that, see `ConsumerOutlet`."""
        return self.permits > 0 and not self.blocked and self.outlet.ask_output()

    @property
    def takes_output(self) -> bool:
        """As `ask_output`, without effect: no callback is scheduled."""
        return self.permits > 0 and not self.blocked and self.outlet.writable

    def ask_messages(self) -> int:
        """Messages that may be sent now, one by one; as `ask_output`."""
        if not self.ask_output():
            return 0
        return min(self.permits, self.unacked_max - self.unacked) if self.unacked_max else self.permits

    def messages_in(self, entries: int) -> int:
        """Estimated messages of this many entries, by the average of the entries sent so far."""
        return entries * self.messages_out // self.entries_out if self.entries_out else entries

    def sent(self, messages: int) -> None:
        """This many messages are sent to the consumer, which must acknowledge them."""
        self.permits -= messages
        self.unacked += messages
        if 0 < self.unacked_max <= self.unacked:
            self.blocked = True

    def released(self, messages: int) -> None:
        """This many messages are not the consumer's any more."""
        self.unacked -= messages
        if self.blocked and self.unacked <= self.unacked_max // 2:
            self.blocked = False

    def limit_unacked(self, messages_max: int) -> None:
        """Sets the limit; blocks or frees at once what it must."""
        self.unacked_max = messages_max
        held = self.unacked > messages_max // 2 if self.blocked else self.unacked >= messages_max
        self.blocked = messages_max > 0 and held

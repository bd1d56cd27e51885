"""A socket's consumer of one topic or partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.base.ids import ConsumerId, Position
from magnetar.base.names import TopicName
from magnetar.broker.session.session import Session
from magnetar.broker.wildcards.wildcard_subscription import WildcardSubscription
from magnetar.runtime.threads import in_thread, in_turn
from magnetar.websocket.asking_line import AskingLine
from magnetar.websocket.deliveries import Opened, Opener
from magnetar.wire.client import MessageEvent

BESIDE_BYTES: Final = 256 << 10
"""Bytes from which messages are decoded in a thread: decompression releases the interpreter lock."""


class MessagePart:
    """The consumer of one topic or partition."""

    def __init__(self, number: int, topic: TopicName, opener: Opener, line: AskingLine) -> None:
        self.number = number
        self.topic = topic
        self.opener = opener
        self.line = line
        """The connection to the broker that has the present consumer."""
        self.consumer_id = ConsumerId(-1)
        """Id of the present consumer; each opening gets a new one."""
        self.permits = 0
        """Messages that the broker may still send."""
        self.ended = False
        """Whether the broker reported the end of the topic."""
        self.seen: tuple[Position, int] | None = None
        """Position of a reader: the last message that the client got."""

    def topic_in(self, session: Session, position: Position) -> TopicName | None:
        """The topic of a message of a wildcard, which `session` consumes; None for other topics."""
        if "*" not in self.topic.local:
            return None
        consumer = session.consumers.get(self.consumer_id)
        subscription = None if consumer is None else consumer.subscription
        return subscription.topic_of(position) if isinstance(subscription, WildcardSubscription) else None

    async def opened(self, event: MessageEvent, count: Callable[[int], None]) -> Opened:
        """Opens an entry. `count` is called with the bytes that this takes, before and after. Raises
        UndeliverableError."""
        opener = self.opener
        large = event.payload_at - event.metadata_at >= BESIDE_BYTES
        metadata = await in_thread(lambda: opener.look(event)) if large else opener.look(event)
        cost = opener.cost(event, metadata)
        if cost < BESIDE_BYTES:
            return opener.open(event, metadata)
        # Before they are stored: a socket may have to be closed for them.
        count(cost)
        try:
            return await in_turn(lambda: opener.open(event, metadata))
        finally:
            count(-cost)

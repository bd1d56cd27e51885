"""Pulsar's protocol behind the loops: Magnetar and Apache Pulsar get the very same bytes."""

from __future__ import annotations

from typing import Final

from bench import frames as f
from bench.connection import answer_commands, connect_to_owner
from bench.consumer import Consumer
from bench.payload import message_of
from bench.scan import ReceiptScanner


class PulsarLane:
    """A producer; answers PINGs."""

    window_messages_max: Final = 1 << 30

    def __init__(
        self, service_url: str, topic: str, *, producer_id: int, payload_bytes: int, messages_per_entry: int
    ) -> None:
        connection = connect_to_owner(service_url, topic)
        name = connection.open_producer(topic, producer_id)
        self.socket: Final = connection.socket
        self.template: Final = f.SendTemplate(
            producer_id=producer_id,
            producer_name=name,
            message=message_of(payload_bytes),
            messages_per_entry=messages_per_entry,
        )
        self._scanner = ReceiptScanner(producer_id=producer_id, messages_per_entry=messages_per_entry)
        self._pending = connection.hand_over()

    @property
    def acknowledged(self) -> int:
        return self._scanner.received

    def feed(self, data: memoryview) -> int:
        used = self._scanner.feed(data)
        if self._scanner.commands:
            answer_commands(self.socket, self._scanner.commands)
        return used

    def pending(self) -> bytes:
        return self._pending


class PulsarDriver:
    """A broker of the Pulsar protocol."""

    def __init__(self, service_url: str) -> None:
        self.service_url: Final = service_url

    def lane(
        self, topic: str, *, payload_bytes: int, messages_per_entry: int, producer_id: int = 1
    ) -> PulsarLane:
        return PulsarLane(
            self.service_url,
            topic,
            producer_id=producer_id,
            payload_bytes=payload_bytes,
            messages_per_entry=messages_per_entry,
        )

    def keep(self, topic: str) -> None:
        """Adds a durable subscription, so that the broker does not trim the messages."""
        with connect_to_owner(self.service_url, topic) as keeper:
            keeper.subscribe(topic, "keep", durable=True, earliest=True)

    def consumer(self, topic: str, *, queue_messages: int, backlog: bool) -> Consumer:
        return Consumer(
            self.service_url,
            topic,
            subscription="reader-bench" if backlog else "bench",
            queue_messages=queue_messages,
            durable=not backlog,
            earliest=True,
        )

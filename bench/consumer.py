"""A counting consumer: one exclusive subscription on one socket that does not block; checks every entry."""

from __future__ import annotations

import time
from typing import Final

from bench import frames as f
from bench import protobuf as pb
from bench.connection import Inbox, answer_commands, connect_to_owner
from bench.driver import Template
from bench.scan import MessageScanner

ACK_PERIOD_S: Final = 0.1
"""How long the official clients gather acknowledgements before they send them."""


class Consumer:
    """Counts and checks entries, keeps the broker supplied with permits, acknowledges if asked."""

    def __init__(
        self,
        service_url: str,
        topic: str,
        *,
        subscription: str,
        queue_messages: int,
        durable: bool,
        earliest: bool,
    ) -> None:
        """Subscribe, without permits yet. `queue_messages`: most permits at a time; refilled at half."""
        connection = connect_to_owner(service_url, topic)
        connection.subscribe(topic, subscription, durable=durable, earliest=earliest)
        self.socket: Final = connection.socket
        self._connection = connection
        self._queue = queue_messages
        self._durable = durable
        self._granted = 0
        self._step = 1
        self._next_ack_s = 0.0
        self._inbox: Inbox | None = None
        self.scanner: MessageScanner | None = None

    @property
    def checks(self) -> int:
        """Entries whose checksum was verified."""
        return self.scanner.checksums_verified if self.scanner else 0

    def start(self, template: Template) -> None:
        """Give the first permits; entries must look like those of `template`, from the first id on."""
        assert isinstance(template, f.SendTemplate)
        self.scanner = MessageScanner(template)
        self._step = template.messages_per_entry
        self._granted = self._queue
        self._connection.flow(self._queue)
        self._inbox = Inbox(self._connection.hand_over())

    @property
    def entries_received(self) -> int:
        """Entries checked so far."""
        return self.scanner.received if self.scanner else 0

    def receive(self) -> None:
        """Read once, check what came, refill permits, acknowledge cumulatively on a durable subscription."""
        assert self.scanner is not None
        assert self._inbox is not None
        data = self._inbox.receive(self.socket)
        if data is None:
            return
        self._inbox.used(self.scanner.feed(data))
        if self.scanner.commands:
            answer_commands(self.socket, self.scanner.commands)
        consumed = self.scanner.received * self._step
        if consumed + self._queue // 2 >= self._granted:
            more = consumed + self._queue - self._granted
            self._granted += more
            self.socket.send(f.command_frame(f.FLOW, pb.field(1, 1) + pb.field(2, more)))
        now_s = time.monotonic()
        if self._durable and self.scanner.last_message_id and now_s >= self._next_ack_s:
            self._next_ack_s = now_s + ACK_PERIOD_S
            body = pb.field(1, 1) + pb.field(2, 1) + pb.field(3, self.scanner.last_message_id)
            self.socket.send(f.command_frame(f.ACK, body))
            self.scanner.last_message_id = b""

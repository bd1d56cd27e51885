"""A group of consumers that share one subscription, and a producer that repeats blocks of ready frames.

Everything runs in one thread over sockets that do not block. Consumers acknowledge each message by itself, as
many with one command as one read brought, which is what the official clients do.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from bench import frames as f
from bench import protobuf as pb
from bench.connection import Connection, Inbox, connect_to_owner
from bench.scan import BrokerAnswerError, split_command

SHARED: Final = 1
KEY_SHARED: Final = 3
WAIT_S: Final = 0.05
STALL_S: Final = 30.0


def send_frame(
    name: str,
    payload: bytes,
    *,
    sequence_id: int = 0,
    key: str = "",
    messages: int = 1,
    deliver_at_ms: int = 0,
) -> bytes:
    """One SEND frame of producer 1. `messages` > 1 makes a batch of equal messages."""
    metadata = pb.field(1, name) + pb.field(2, sequence_id) + pb.field(3, time.time_ns() // 1_000_000)
    if key:
        metadata += pb.field(6, key)
    if messages > 1:
        metadata += pb.field(11, messages)
        payload = f.batch_payload(payload, messages)
    if deliver_at_ms:
        metadata += pb.field(19, deliver_at_ms)
    checked = len(metadata).to_bytes(4, "big") + metadata + payload
    body = pb.field(1, 1) + pb.field(2, sequence_id) + pb.field(3, messages)
    command = pb.field(1, f.SEND) + pb.field(f.SEND, body)
    tail = f.MAGIC_CRC32C + f.crc32c(checked).to_bytes(4, "big") + checked
    head = len(command).to_bytes(4, "big") + command
    return (len(head) + len(tail)).to_bytes(4, "big") + head + tail


class Sender:
    """Sends blocks of frames one after the other, again and again, and counts receipts."""

    def __init__(self, service_url: str, topic: str) -> None:
        connection = connect_to_owner(service_url, topic)
        self.name: Final = connection.open_producer(topic, 1)
        self.socket: Final = connection.socket
        self._inbox = Inbox(connection.hand_over())
        self._unsent = memoryview(b"")
        self.sent = 0
        """Frames that were handed to the socket, or are about to be."""
        self.acknowledged = 0
        self.last_at_s = 0.0
        """When the last receipt came."""

    def pump(self, next_block: Callable[[], tuple[bytes, int] | None]) -> None:
        """Sends what the socket takes; `next_block` gives the next block and the frames in it."""
        while True:
            if not self._unsent:
                block = next_block()
                if block is None:
                    return
                self._unsent = memoryview(block[0])
                self.sent += block[1]
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                return

    def receive(self) -> None:
        """Counts receipts of one read. Raises BrokerAnswerError for a refusal."""
        data = self._inbox.receive(self.socket)
        if data is None:
            return
        at, end = 0, len(data)
        while end - at >= 10:
            size = int.from_bytes(data[at : at + 4], "big") + 4
            if end - at < size:
                break
            kind = data[at + 9]
            if kind == f.SEND_RECEIPT:
                self.acknowledged += 1
            elif kind == f.PING:
                self.socket.send(f.command_frame(f.PONG, b""))
            elif kind == f.SEND_ERROR:
                raise BrokerAnswerError("a message was refused")
            at += size
        self._inbox.used(at)
        self.last_at_s = time.perf_counter()


class _GroupConnection(Connection):
    """Consumers of one subscription on one connection."""

    def join(self, topic: str, subscription: str, kind: int, consumer_id: int) -> None:
        head = pb.field(1, topic) + pb.field(2, subscription) + pb.field(3, kind) + pb.field(4, consumer_id)
        tail = pb.field(6, f"c{consumer_id}") + pb.field(13, 1)
        self._request(f.SUBSCRIBE, head, tail, 5, f.SUCCESS)

    def permit(self, consumer_id: int, messages: int) -> None:
        self._send(f.FLOW, pb.field(1, consumer_id) + pb.field(2, messages))


class Member:
    """One connection of the group."""

    def __init__(
        self, service_url: str, topic: str, subscription: str, kind: int, ids: Iterable[int], queue: int
    ) -> None:
        """`queue`: permits of each consumer; refilled at half."""
        owner = connect_to_owner(service_url, topic)
        owner.socket.close()
        connection = _GroupConnection(owner.service_url)
        connection.lookup(topic)
        self._ids = list(ids)
        for consumer_id in self._ids:
            connection.join(topic, subscription, kind, consumer_id)
        for consumer_id in self._ids:
            connection.permit(consumer_id, queue)
        self.socket: Final = connection.socket
        self._queue = queue
        self._taken = dict.fromkeys(self._ids, 0)
        self._inbox = Inbox(connection.hand_over())
        self._unsent = b""
        self.received = 0
        """Entries."""
        self.redelivered = 0

    def receive(
        self, each: Callable[[memoryview], None] | None, messages_per_entry: int, *, ack: bool
    ) -> None:
        """Takes what one read brought and acknowledges it. `each` is called with every frame."""
        data = self._inbox.receive(self.socket)
        if data is None:
            return
        acks: dict[int, list[bytes]] = {}
        at, end = 0, len(data)
        while end - at >= 10:
            size = int.from_bytes(data[at : at + 4], "big") + 4
            if end - at < size:
                break
            # BaseCommand {type = 9, message {consumer_id, message_id, …}}: bytes 08 09 4a len 08 id 12 len …
            if data[at + 9] == f.MESSAGE:
                command = at + 12
                consumer_id, shift, place = 0, 0, command + 1
                while True:
                    byte = data[place]
                    consumer_id |= (byte & 0x7F) << shift
                    shift += 7
                    place += 1
                    if byte < 0x80:
                        break
                acks.setdefault(consumer_id, []).append(
                    b"\x1a" + bytes(data[place + 1 : place + 2 + data[place + 1]])
                )
                if each is not None:
                    each(data[at : at + size])
            else:
                kind, _, _ = split_command(data[at : at + size])
                if kind == f.PING:
                    self._unsent += f.command_frame(f.PONG, b"")
            at += size
        self._inbox.used(at)
        out = [self._unsent]
        for consumer_id, ids in acks.items():
            self.received += len(ids)
            if ack:
                body = pb.field(1, consumer_id) + pb.field(2, 0) + b"".join(ids)
                out.append(f.command_frame(f.ACK, body))
            taken = self._taken[consumer_id] + len(ids) * messages_per_entry
            if taken >= self._queue // 2:
                out.append(f.command_frame(f.FLOW, pb.field(1, consumer_id) + pb.field(2, taken)))
                taken = 0
            self._taken[consumer_id] = taken
        self._unsent = b"".join(out)
        self.flush()

    def acknowledge(self, consumer_id: int, ids: Sequence[bytes]) -> None:
        """Acknowledges messages by their ids as they came."""
        body = pb.field(1, consumer_id) + pb.field(2, 0) + b"".join([pb.field(3, each) for each in ids])
        self._unsent += f.command_frame(f.ACK, body)
        self.flush()

    def flush(self) -> None:
        """Sends what the socket did not take before."""
        if self._unsent:
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                return


class Group:
    """A sender and members, moved forward by `turn`."""

    def __init__(
        self,
        sender: Sender | None,
        members: Sequence[Member],
        *,
        messages_per_entry: int = 1,
        each: Callable[[memoryview], None] | None = None,
        ack: bool = True,
    ) -> None:
        self.sender = sender
        self._ack = ack
        self.members: Final = members
        self._messages_per_entry = messages_per_entry
        self.each = each
        """Called with every frame of a message."""
        self._epoll = select.epoll()
        self._by_fd = {member.socket.fileno(): member for member in members}
        for fd in self._by_fd:
            self._epoll.register(fd, select.EPOLLIN)
        if sender is not None:
            self._epoll.register(sender.socket.fileno(), select.EPOLLIN)

    @property
    def received(self) -> int:
        """Entries that all members took."""
        return sum(member.received for member in self.members)

    def turn(self, next_block: Callable[[], tuple[bytes, int] | None], *, wait_s: float = WAIT_S) -> None:
        """One round: sends what may be sent, takes what came."""
        sender = self.sender
        if sender is not None:
            sender.pump(next_block)
        for fd, _ in self._epoll.poll(0.001 if sender is not None else wait_s):
            member = self._by_fd.get(fd)
            if member is not None:
                member.receive(self.each, self._messages_per_entry, ack=self._ack)
            elif sender is not None:
                sender.receive()
        for member in self.members:
            member.flush()

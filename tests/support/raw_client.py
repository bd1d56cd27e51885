"""A blocking socket that speaks the protocol, and says whatever it is told to."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from magnetar.base.ids import Position
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_ack, encode_flow
from magnetar.wire.client import ClientParser, CommandEvent
from support.seen import Seen
from support.sessions import CONNECT, FRAME_BYTES_MAX, Type, command, send

DEADLINE_S = 60.0


class RawClient(Seen):
    """One connection. Everything the broker sends is kept in `seen`."""

    def __init__(
        self,
        url: str,
        *,
        handshake: bool = True,
        receive_buffer_bytes: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls`: the connection is made with it, to `localhost`."""
        super().__init__()
        address = urlsplit(url)
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect((address.hostname, address.port))
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.closed = False
        """Whether the broker closed the connection."""
        self._parser = ClientParser(FRAME_BYTES_MAX)
        self._rest = b""
        if handshake:
            self.send(CONNECT)
            self.wait(lambda: self.commands(Type.CONNECTED), "CONNECTED")

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, *frames: bytes) -> None:
        """Writes all of it. A connection that the broker has closed is noted, not raised."""
        try:
            self.socket.sendall(b"".join(frames))
        except (BrokenPipeError, ConnectionResetError):
            self.closed = True

    def reset(self) -> None:
        """Drops the connection with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def shut_down(self) -> None:
        """Ends the connection, also for a thread that writes to it."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def read(self, timeout_s: float = DEADLINE_S) -> None:
        """Reads once; waits at most `timeout_s`."""
        self.socket.settimeout(timeout_s)
        try:
            data = self.socket.recv(1 << 20)
        except TimeoutError:
            return
        except ConnectionResetError:
            data = b""
        finally:
            self.socket.settimeout(DEADLINE_S)
        if not data:
            self.closed = True
            return
        data = self._rest + data
        events, consumed = self._parser.parse(data, len(data))
        self._rest = data[consumed:]
        self.seen += [event.command if isinstance(event, CommandEvent) else event for event in events]

    def wait(self, condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
        """Reads until `condition` is true; its value."""
        end = time.monotonic() + deadline_s
        while not (value := condition()):
            left = end - time.monotonic()
            assert left > 0, f"not {what} within {deadline_s} s"
            assert not self.closed, f"the connection was closed before {what}"
            self.read(left)
        return value

    def wait_closed(self) -> None:
        """Reads until the broker closes the connection."""
        end = time.monotonic() + DEADLINE_S
        while not self.closed:
            left = end - time.monotonic()
            assert left > 0, "the broker keeps the connection"
            self.read(left)

    def ask(self, kind: int, **fields: Any) -> Any:
        """Sends a command and returns the body of the answer to its request id."""
        self.send(command(kind, **fields))
        return self.answer(fields["request_id"])

    def answer(self, request_id: int) -> Any:
        """The body of the reply to this request."""
        return self.wait(lambda: self.find_answer(request_id), f"answer to {request_id}")

    def open_producer(self, topic: str, producer_id: int = 1, request_id: int = 1) -> None:
        """Opens a producer, which must be granted."""
        answer = self.ask(Type.PRODUCER, topic=topic, producer_id=producer_id, request_id=request_id)
        assert answer.DESCRIPTOR.name == "CommandProducerSuccess", answer

    def open_consumer(
        self,
        topic: str,
        consumer_id: int = 1,
        request_id: int = 2,
        *,
        subscription: str = "s",
        kind: str = "Shared",
        permits: int = 0,
    ) -> None:
        """Opens a consumer from the first message on, which must be granted."""
        answer = self.ask(
            Type.SUBSCRIBE,
            topic=topic,
            consumer_id=consumer_id,
            request_id=request_id,
            subscription=subscription,
            subType=pb.CommandSubscribe.SubType.Value(kind),
            initialPosition=pb.CommandSubscribe.InitialPosition.Earliest,
        )
        assert answer.DESCRIPTOR.name == "CommandSuccess", answer
        if permits:
            self.send(encode_flow(consumer_id, permits))

    def publish(self, sequence_ids: range, body: bytes = b"x", producer_id: int = 1) -> list[Position]:
        """Publishes and waits for the receipts; the positions."""
        known = len(self.receipts)
        self.send(*(send(producer_id, i, body) for i in sequence_ids))
        self.wait(lambda: len(self.receipts) == known + len(sequence_ids), "receipts")
        return [position for _, position in self.receipts[known:]]

    @property
    def receipts(self) -> list[tuple[int, Position]]:
        """Sequence id and position of all receipts, in order."""
        return [(sequence_id, position) for _, sequence_id, position in self.receipts_of_all]

    def ack(self, *positions: Position, consumer_id: int = 1) -> None:
        """Acknowledges entries one by one."""
        self.send(*(encode_ack(consumer_id, [position]) for position in positions))

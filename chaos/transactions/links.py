"""Connections of one client to the brokers that serve what it names."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from google.protobuf.message import Message

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import ClientEvent, ClientParser, CommandEvent, MessageEvent, ReceiptRun
from magnetar.wire.frames import encode_command, frame_bytes_max

CommandType = pb.BaseCommand.Type
FIELDS: Final = {
    number: pb.BaseCommand.DESCRIPTOR.fields_by_number[number].name for number in CommandType.values()
}
"""Name of the field that holds a command of each type."""
ANSWER_S: Final = 60.0
"""Longest wait for an answer. A broker that ends a transaction waits ten seconds for others."""
_CONNECT_S: Final = 10.0
_BYTES_MAX: Final = frame_bytes_max(5 << 20)
_CLOSING: Final = (CommandType.CLOSE_PRODUCER, CommandType.CLOSE_CONSUMER)

Where = Callable[[str], str]
"""URL of the broker that serves a topic. Raises OSError."""


class LostError(Exception):
    """A broker is gone, or does not serve a topic any more: everything is opened anew."""


def command(kind: pb.BaseCommand.Type, **fields: object) -> bytes:
    """A frame of this command."""
    message = pb.BaseCommand(type=kind)
    body: Message = getattr(message, FIELDS[kind])
    body.SetInParent()
    body.MergeFrom(type(body)(**fields))
    return encode_command(message)


class Link:
    """One connection."""

    def __init__(self, url: str) -> None:
        """Raises LostError."""
        self.url = url
        address = urlsplit(url)
        self._parser = ClientParser(_BYTES_MAX)
        self._rest = b""
        try:
            self.socket = socket.create_connection(
                (address.hostname or "", address.port or 0), timeout=_CONNECT_S
            )
        except OSError as error:
            raise LostError(str(error)) from error
        self.socket.settimeout(ANSWER_S)
        self.send(command(CommandType.CONNECT, client_version="chaos", protocol_version=19))

    def send(self, *frames: bytes) -> None:
        """Raises LostError."""
        try:
            self.socket.sendall(b"".join(frames))
        except OSError as error:
            raise LostError(str(error)) from error

    def read(self) -> Sequence[ClientEvent]:
        """What has come. Raises LostError."""
        try:
            data = self.socket.recv(1 << 20)
        except OSError as error:
            raise LostError(str(error)) from error
        if not data:
            raise LostError("the broker closed the connection")
        data = self._rest + data
        events, taken = self._parser.parse(data, len(data))
        self._rest = data[taken:]
        return events


class Links:
    """All connections of one client. When one is lost, all are given up."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._of: dict[str, Link] = {}
        self._of_topic: dict[str, Link] = {}
        self._request = 0
        self.answers: dict[int, pb.BaseCommand] = {}
        """By request."""
        self.events: list[ReceiptRun | MessageEvent] = []
        """Receipts and messages that nothing has taken yet."""
        self.refusals: dict[tuple[int, int], str] = {}
        """SENDs that were refused, by producer and sequence, and why."""

    def to(self, topic: str) -> Link:
        """The connection for a topic. Raises LostError."""
        link = self._of_topic.get(topic)
        if link is None:
            try:
                url = self._where(topic)
            except OSError as error:
                raise LostError(str(error)) from error
            if url not in self._of:
                self._of[url] = Link(url)
            link = self._of_topic[topic] = self._of[url]
        return link

    def close(self) -> None:
        """Ends them; may be called twice."""
        for link in self._of.values():
            link.socket.close()
        self._of.clear()
        self._of_topic.clear()

    def next_request(self) -> int:
        """The number of a new request."""
        self._request += 1
        return self._request

    def ask(self, link: Link, kind: pb.BaseCommand.Type, **fields: object) -> int:
        """Sends a request; its number. Raises LostError."""
        number = self.next_request()
        link.send(command(kind, request_id=number, **fields))
        return number

    def read(self, timeout_s: float) -> None:
        """What comes within that time: answers go to `answers`, all else to `events`. Raises LostError."""
        waiting = {link.socket.fileno(): link for link in self._of.values()}
        poll = select.poll()
        for number in waiting:
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll(max(timeout_s, 0) * 1_000):
            link = waiting[number]
            for event in link.read():
                if not isinstance(event, CommandEvent):
                    self.events.append(event)
                else:
                    self._hear(link, event.command)

    def _hear(self, link: Link, said: pb.BaseCommand) -> None:
        if said.type == CommandType.PING:
            link.send(command(CommandType.PONG))
        elif said.type in _CLOSING:
            raise LostError("a topic is unloaded")
        elif said.type == CommandType.SEND_ERROR:
            self.refusals[said.send_error.producer_id, said.send_error.sequence_id] = said.send_error.message
        else:
            request = getattr(getattr(said, FIELDS[said.type]), "request_id", None)
            if request is not None:
                self.answers[request] = said

    def until(self, condition: Callable[[], bool]) -> None:
        """Reads until the condition holds. Raises LostError after `ANSWER_S`."""
        end_s = time.monotonic() + ANSWER_S
        while not condition():
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise LostError("no answer")
            self.read(left_s)

    def answered(self, requests: Sequence[int]) -> list[pb.BaseCommand]:
        """The answers, in the order of the requests. Raises LostError."""
        self.until(lambda: all(number in self.answers for number in requests))
        return [self.answers.pop(number) for number in requests]

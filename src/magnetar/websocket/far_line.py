"""A WebSocket's connection to another broker of the cluster, which serves one of its topics.

It shows the credentials of the WebSocket's client, so the other broker checks the same rights, counts the
same role and names it in its audit log. It leads only to addresses that a broker registered, and over TLS
when the client came over TLS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast
from urllib.parse import urlsplit

from magnetar.base.names import TopicName
from magnetar.broker.listeners import Addresses
from magnetar.runtime.broker_trust import broker_context
from magnetar.websocket.asking_line import WAITING_BYTES_MAX, AskingLine
from magnetar.websocket.far_lines import unreachable
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_ack, encode_flow
from magnetar.wire.client import ClientEvent
from magnetar.wire.commands import message_id_data
from magnetar.wire.events import AckEvent, CommandEvent, FlowEvent, SendRun, ServerEvent
from magnetar.wire.frames import FrameError, encode_command
from magnetar.wire.sends import encode_send

_Type = pb.BaseCommand.Type

CONNECT_S: Final = 5.0
"""Seconds for a connection to another broker."""
UNSENT_BYTES_MAX: Final = 1 << 20
"""Bytes for the other broker above which the WebSocket is not read."""


class FarLine(AskingLine, asyncio.Protocol):
    """One connection. It is lost for good when the other broker ends it."""

    def __init__(
        self,
        message_bytes_max: int,
        *,
        hear: Callable[[ClientEvent], None],
        ended: Callable[[str], None],
        trust_certs: str = "",
    ) -> None:
        """`hear`, `ended`: see `AskingLine`; `trust_certs`: see `broker_context`."""
        super().__init__(message_bytes_max, hear=hear, ended=ended)
        self._trust_certs = trust_certs
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting_bytes = 0

    async def open(self, at: Addresses, *, secure: bool) -> None:
        """Connects to a broker. `secure`: over TLS only. Raises RefusedByBrokerError."""
        url = at.tls if secure else at.plain or at.tls
        if not url:
            raise unreachable("the other broker has no TLS port, and what came over TLS stays on TLS")
        parts = urlsplit(url)
        try:
            tls = broker_context(self._trust_certs) if parts.scheme == "pulsar+ssl" else None
            async with asyncio.timeout(CONNECT_S):
                await self._loop.create_connection(
                    lambda: self, parts.hostname or "", parts.port or 0, ssl=tls
                )
        except TimeoutError as error:
            raise unreachable(f"broker {url} did not answer within {CONNECT_S:g} s") from error
        except (OSError, ValueError) as error:
            raise unreachable(f"broker {url} cannot be reached: {error}") from error

    async def claim(self, topic: TopicName) -> None:
        """Has the broker take the topic, which was given to it. Raises RefusedByBrokerError,
        LineClosedError."""
        body = pb.CommandLookupTopic(topic=str(topic), authoritative=True)
        answer = await self.ask(_Type.LOOKUP, body)
        if answer.response == pb.CommandLookupTopicResponse.Redirect:
            raise unreachable(f"{topic} is given to another broker in this moment")

    def hand(self, *events: ServerEvent) -> None:
        """See `AskingLine.hand`."""
        if not self.closed and self._transport is not None:
            self._transport.write(b"".join(piece for event in events for piece in _encoded(event)))

    def held(self, size_bytes: int) -> None:
        """See `AskingLine.held`."""
        self._waiting_bytes += size_bytes
        transport = self._transport
        if self._waiting_bytes > WAITING_BYTES_MAX and transport is not None and transport.is_reading():
            transport.pause_reading()

    def taken(self, size_bytes: int) -> None:
        """See `AskingLine.taken`."""
        self._waiting_bytes -= size_bytes
        transport = self._transport
        if (
            self._waiting_bytes <= WAITING_BYTES_MAX // 2
            and transport is not None
            and not (self.closed or transport.is_reading() or transport.is_closing())
        ):
            transport.resume_reading()

    def end(self) -> None:
        """See `AskingLine.end`."""
        if self._shut("the client is gone") and self._transport is not None:
            # What was handed over is sent.
            self._transport.close()

    def _gone(self) -> Exception:
        # The topic has another owner now, or will have one: the client's request can be made again.
        return unreachable(self.close_reason)

    # -- asyncio.Protocol --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's methods but not its classes.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        if self.closed:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        received = self._received
        received += data
        try:
            events, consumed = self._parser.parse(received, len(received))
        except FrameError as error:
            self._lose(f"the other broker sent a wrong frame: {error}")
            return
        del received[:consumed]
        for event in events:
            self._take(event)

    def pause_writing(self) -> None:
        self.readable.clear()

    def resume_writing(self) -> None:
        self.readable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(f"the broker of the topic ended the connection{f': {exc}' if exc is not None else ''}")

    def _lose(self, reason: str) -> None:
        if not self._shut(reason):
            return
        if self._transport is not None:
            self._transport.abort()
        self._ended(reason)


def _encoded(event: ServerEvent) -> list[bytes]:
    """The frames of an event."""
    if isinstance(event, CommandEvent):
        return [encode_command(event.command)]
    if isinstance(event, FlowEvent):
        return [encode_flow(event.consumer_id, event.permits)]
    if isinstance(event, AckEvent):
        return [_encoded_ack(event)]
    assert isinstance(event, SendRun), "a WebSocket hands over no other"
    return [
        encode_send(
            event.producer_id,
            event.sequence_ids[row],
            1 if event.counts is None else event.counts[row],
            entry,
            None if event.highest_sequence_ids is None else event.highest_sequence_ids[row],
        )
        for row, entry in enumerate(event.entries)
    ]


def _encoded_ack(event: AckEvent) -> bytes:
    if event.batch_acks is None:
        return encode_ack(event.consumer_id, event.positions, cumulative=event.cumulative)
    kinds = pb.CommandAck.AckType
    ack = pb.CommandAck(
        consumer_id=event.consumer_id, ack_type=kinds.Cumulative if event.cumulative else kinds.Individual
    )
    for position in event.positions:
        ack.message_id.append(message_id_data(position))
    for position, words, size in event.batch_acks:
        data = message_id_data(position)
        data.batch_size = size
        # Signed in the protocol.
        data.ack_set.extend(word - (1 << 64) if word >> 63 else word for word in words)
        ack.message_id.append(data)
    return encode_command(pb.BaseCommand(type=_Type.ACK, ack=ack))

"""A WebSocket's connection to the broker: a session of the binary protocol without a socket.

Commands enter as events; the frames of the session are read as a client reads them. Authentication, rights,
limits, deduplication and statistics are those of the session, so WebSockets behave like other clients.

Messages for a slow WebSocket wait here, up to `_WAITING_BYTES_MAX`; above it the session counts as a full
socket, and dispatch stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import magnetar
from magnetar.auth.identity import Credentials
from magnetar.base.ids import RequestId
from magnetar.base.names import TopicName
from magnetar.broker.service import Broker
from magnetar.broker.session.session import Session
from magnetar.websocket.errors import LineClosedError, RefusedByBrokerError
from magnetar.wire import features
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import ClientEvent, ClientParser
from magnetar.wire.events import CommandEvent, ServerEvent
from magnetar.wire.frames import NO_REQUEST, frame_bytes_max

_Type = pb.BaseCommand.Type

_WAITING_BYTES_MAX: Final = 1 << 20
"""Most bytes of messages that wait for the WebSocket; one larger message may come in addition."""
ANSWER_S: Final = 30.0
"""Seconds to wait for an answer of the broker, as clients of the binary protocol do."""

_BODIES: Final = {
    number: pb.BaseCommand.DESCRIPTOR.fields_by_number[number].name for number in pb.BaseCommand.Type.values()
}

_REFUSALS: Final = frozenset((_Type.ERROR, _Type.PARTITIONED_METADATA_RESPONSE, _Type.ACK_RESPONSE))


class Line:
    """One connection of the binary protocol, within the process. Implements the session's transport."""

    def __init__(
        self,
        broker: Broker,
        *,
        peer: str,
        local_host: str,
        port: int,
        certificate_role: str | None,
        hear: Callable[[ClientEvent], None],
        ended: Callable[[str], None],
    ) -> None:
        """`hear` gets every event that does not answer a request; `ended` gets the reason when the broker
        ends the connection. Both are called on the event loop and must not block."""
        self.broker = broker
        self.readable = asyncio.Event()
        """Set while the broker takes more of this client."""
        self.readable.set()
        self.closed = False
        self.close_reason = ""
        self._hear = hear
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._parser = ClientParser(frame_bytes_max(broker.config.message_bytes_max))
        self._answers: dict[int, asyncio.Future[pb.BaseCommand]] = {}
        self._request_id = 0
        self._waiting_bytes = 0
        self._flush_scheduled = False
        self.session = Session(
            broker, self, peer=peer, local_host=local_host, port=port, certificate_role=certificate_role
        )

    # -- the client's side -------------------------------------------------------------------------

    async def connect(self, credentials: Credentials, original_role: str) -> None:
        """Opens the session. Raises RefusedByBrokerError, LineClosedError."""
        answer = self._expect(NO_REQUEST)
        body = pb.CommandConnect(
            client_version=f"Magnetar-WebSocket-v{magnetar.__version__}",
            protocol_version=features.PROTOCOL_VERSION,
            auth_method_name=credentials.method,
            auth_data=credentials.data,
            original_principal=original_role,
        )
        self.hand(CommandEvent(_Type.CONNECT, pb.BaseCommand(type=_Type.CONNECT, connect=body)))
        await self._answered(NO_REQUEST, answer)
        # The WebSocket API tells of it when asked, so all clients can take it.
        self.session.takes_end_of_topic = True

    def hand(self, *events: ServerEvent) -> None:
        """Passes commands of the client to the broker."""
        if not self.closed:
            self.session.handle(events)

    def next_request_id(self) -> int:
        """An id that no other request of this connection has."""
        self._request_id += 1
        return self._request_id

    async def ask(self, kind: _Type, body: Any) -> Any:
        """Sends a command, whose request id is set here, and returns the body of its answer.

        Raises RefusedByBrokerError, LineClosedError.
        """
        body.request_id = self.next_request_id()
        command = pb.BaseCommand(type=kind)
        getattr(command, _BODIES[kind]).CopyFrom(body)
        answer = self._expect(body.request_id)
        self.hand(CommandEvent(kind, command))
        return await self._answered(body.request_id, answer)

    async def partitions(self, topic: TopicName) -> int:
        """The number of partitions of a topic; 0 when it is not partitioned. Raises the errors of `ask`."""
        body = pb.CommandPartitionedTopicMetadata(topic=str(topic))
        return int((await self.ask(_Type.PARTITIONED_METADATA, body)).partitions)

    def held(self, size_bytes: int) -> None:
        """Adds bytes that wait for the WebSocket."""
        self._waiting_bytes += size_bytes
        if self._waiting_bytes > _WAITING_BYTES_MAX:
            self.session.transport_writable = False

    def taken(self, size_bytes: int) -> None:
        """Subtracts bytes that no longer wait."""
        self._waiting_bytes -= size_bytes
        session = self.session
        if (
            not session.transport_writable
            and self._waiting_bytes <= _WAITING_BYTES_MAX // 2
            and not self.closed
        ):
            session.transport_writable = True
            session.resume_reading()
            session.pump()

    def end(self) -> None:
        """Ends the session after the client has disconnected."""
        self._close("the client is gone", tell=False)

    # -- answers -----------------------------------------------------------------------------------

    def _expect(self, request_id: RequestId) -> asyncio.Future[pb.BaseCommand]:
        answer: asyncio.Future[pb.BaseCommand] = self._loop.create_future()
        if self.closed:
            answer.set_exception(LineClosedError(self.close_reason))
        else:
            self._answers[request_id] = answer
        return answer

    async def _answered(self, request_id: RequestId, answer: asyncio.Future[pb.BaseCommand]) -> object:
        try:
            async with asyncio.timeout(ANSWER_S):
                command = await answer
        except TimeoutError:
            raise LineClosedError(f"no answer within {ANSWER_S:g} s") from None
        finally:
            self._answers.pop(request_id, None)
        body = getattr(command, _BODIES[command.type])
        if command.type in _REFUSALS and body.HasField("error"):
            raise RefusedByBrokerError(body.error, body.message)
        return body

    def _take(self, event: ClientEvent) -> None:
        if not isinstance(event, CommandEvent):
            self._hear(event)
            return
        kind = event.type
        if kind == _Type.PING:
            pong = pb.BaseCommand(type=_Type.PONG, pong=pb.CommandPong())
            self._loop.call_soon(self.hand, CommandEvent(_Type.PONG, pong))
            return
        body = getattr(event.command, _BODIES[kind])
        request_id = NO_REQUEST if kind == _Type.CONNECTED else getattr(body, "request_id", None)
        answer = None if request_id is None else self._answers.get(request_id)
        if answer is None:
            self._hear(event)
        elif kind == _Type.PRODUCER_SUCCESS and not body.producer_ready:
            # The producer waits for exclusive access; a second answer follows.
            return
        elif not answer.done():
            answer.set_result(event.command)

    # -- the session's transport ----------------------------------------------------------------------

    def flush_soon(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        session = self.session
        size = session.out_bytes
        if not size:
            return
        out, session.out, session.out_bytes = session.out, [], 0
        data = b"".join(out)
        events, consumed = self._parser.parse(data, len(data))
        assert consumed == len(data), "a session writes whole frames"
        for event in events:
            self._take(event)
        session.wrote(size)
        if session.starved and session.transport_writable:
            self._loop.call_soon(session.pump)

    def unsent_bytes(self) -> int:
        return 0 if self.closed else self._waiting_bytes

    def pause_reading(self) -> None:
        self.readable.clear()

    def resume_reading(self) -> None:
        self.readable.set()

    def close(self, reason: str) -> None:
        self._flush()
        self._close(reason, tell=True)

    def abort(self, reason: str) -> None:
        self._close(reason, tell=True)

    def hand_over(self, place: Path) -> None:
        raise AssertionError("a line names no other process in its CONNECT")

    def _close(self, reason: str, *, tell: bool) -> None:
        if self.closed:
            return
        self.closed = True
        self.session.closing(reason)
        self.close_reason = reason
        self.readable.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(LineClosedError(reason))
        # Not at once: the session may be in the middle of what made it close.
        self._loop.call_soon(self.session.lost)
        if tell:
            self._ended(reason)

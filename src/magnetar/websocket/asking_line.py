"""What a WebSocket's connections to brokers have in common: requests with answers, and events without.

`line.py` leads to this broker, within the process; `far_line.py` to another broker of the cluster.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import magnetar
from magnetar.auth.identity import Credentials
from magnetar.base.ids import RequestId
from magnetar.base.names import TopicName
from magnetar.websocket.errors import LineClosedError, RefusedByBrokerError
from magnetar.wire import features
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import ClientEvent, ClientParser
from magnetar.wire.events import CommandEvent, ServerEvent
from magnetar.wire.frames import NO_REQUEST, frame_bytes_max

_Type = pb.BaseCommand.Type

WAITING_BYTES_MAX: Final = 1 << 20
"""Most bytes of messages that wait for the WebSocket; one larger message may come in addition."""
ANSWER_S: Final = 30.0
"""Seconds to wait for an answer of the broker, as clients of the binary protocol do."""

_BODIES: Final = {
    number: pb.BaseCommand.DESCRIPTOR.fields_by_number[number].name for number in pb.BaseCommand.Type.values()
}

_REFUSALS: Final = frozenset(
    (_Type.ERROR, _Type.PARTITIONED_METADATA_RESPONSE, _Type.ACK_RESPONSE, _Type.LOOKUP_RESPONSE)
)


class AskingLine(ABC):
    """One connection of the binary protocol, for one WebSocket."""

    def __init__(
        self, message_bytes_max: int, *, hear: Callable[[ClientEvent], None], ended: Callable[[str], None]
    ) -> None:
        """`hear` gets every event that does not answer a request; `ended` gets the reason when the broker
        ends the connection. Both are called on the event loop and must not block."""
        self.readable = asyncio.Event()
        """Set while the broker takes more of this client."""
        self.readable.set()
        self.closed = False
        self.close_reason = ""
        self._hear = hear
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._parser = ClientParser(frame_bytes_max(message_bytes_max))
        self._answers: dict[int, asyncio.Future[pb.BaseCommand]] = {}
        self._request_id = 0

    # -- to be given -------------------------------------------------------------------------------

    @abstractmethod
    def hand(self, *events: ServerEvent) -> None:
        """Passes commands of the client to the broker."""

    @abstractmethod
    def held(self, size_bytes: int) -> None:
        """Adds bytes that wait for the WebSocket."""

    @abstractmethod
    def taken(self, size_bytes: int) -> None:
        """Subtracts bytes that no longer wait."""

    @abstractmethod
    def end(self) -> None:
        """Ends the connection after the client has disconnected."""

    # -- requests ----------------------------------------------------------------------------------

    async def connect(self, credentials: Credentials, original_role: str) -> None:
        """Shows the client's credentials. Raises RefusedByBrokerError, LineClosedError."""
        answer = self._expect(NO_REQUEST)
        body = pb.CommandConnect(
            client_version=f"{features.WEBSOCKET_CLIENT}{magnetar.__version__}",
            protocol_version=features.PROTOCOL_VERSION,
            auth_method_name=credentials.method,
            auth_data=credentials.data,
            original_principal=original_role,
        )
        self.hand(CommandEvent(_Type.CONNECT, pb.BaseCommand(type=_Type.CONNECT, connect=body)))
        await self._answered(NO_REQUEST, answer)

    async def ask(self, kind: _Type, body: Any) -> Any:
        """Sends a command, whose request id is set here, and returns the body of its answer.

        Raises RefusedByBrokerError, LineClosedError.
        """
        self._request_id += 1
        body.request_id = self._request_id
        command = pb.BaseCommand(type=kind)
        getattr(command, _BODIES[kind]).CopyFrom(body)
        answer = self._expect(body.request_id)
        self.hand(CommandEvent(kind, command))
        return await self._answered(body.request_id, answer)

    async def partitions(self, topic: TopicName) -> int:
        """The number of partitions of a topic; 0 when it is not partitioned. Raises the errors of `ask`."""
        body = pb.CommandPartitionedTopicMetadata(topic=str(topic))
        return int((await self.ask(_Type.PARTITIONED_METADATA, body)).partitions)

    def _gone(self) -> Exception:
        """The error of requests without an answer, once the line is closed."""
        return LineClosedError(self.close_reason)

    def _expect(self, request_id: RequestId) -> asyncio.Future[pb.BaseCommand]:
        answer: asyncio.Future[pb.BaseCommand] = self._loop.create_future()
        if self.closed:
            answer.set_exception(self._gone())
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

    def _shut(self, reason: str) -> bool:
        """Notes the end, and fails what waits for an answer; False when it had ended before."""
        if self.closed:
            return False
        self.closed = True
        self.close_reason = reason
        self.readable.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._gone())
        return True

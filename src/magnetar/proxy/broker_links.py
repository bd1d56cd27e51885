"""Sockets from the proxy to a broker, each for one client (driver)."""

from __future__ import annotations

import asyncio
import ssl
from abc import abstractmethod
from typing import Final, Protocol

from magnetar.broker.session.greetings import CONNECT_BYTES_MAX
from magnetar.proxy.frames_of_broker import next_frame
from magnetar.proxy.known_brokers import BrokerAddress
from magnetar.proxy.ports import ProxyPort
from magnetar.proxy.session import ProxySession
from magnetar.proxy.splice import Half, ReadBuffer
from magnetar.runtime.tasks import call_later
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import FrameError

Type = pb.BaseCommand.Type

_OF_THE_CLIENT: Final = (pb.ServerError.AuthenticationError, pb.ServerError.AuthorizationError)


class LinkOwner(Protocol):
    """The client's side of a link."""

    @property
    def session(self) -> ProxySession:
        """Its session."""

    @property
    def takes(self) -> bool:
        """Whether it takes bytes; else links must not read."""

    def left(self, link: BrokerLink) -> None:
        """A link is closed."""

    def joined(self, link: BrokerTunnel, rest: bytes) -> None:
        """The broker has answered CONNECTED, which is in `rest` with all that came after it."""


class BrokerLink(Half):
    """A socket to a broker for one client, from its opening to the broker's CONNECTED."""

    def __init__(
        self,
        proxy: ProxyPort,
        shared: ReadBuffer,
        target: BrokerAddress,
        introduction: bytes,
        client: LinkOwner,
    ) -> None:
        super().__init__(proxy, shared)
        self._target = target
        self._introduction = introduction
        self._client = client
        self._greeted = False
        self._ended = False
        self._counted = False
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, tls: ssl.SSLContext | None) -> None:
        """Connects. A failure is told to the client's session."""
        target, seconds = self._target, self._proxy.options.broker_s
        loop = asyncio.get_running_loop()
        if self._ended:
            return
        if not self._proxy.take_link():
            self._fail("the proxy has no socket left for connections to brokers")
            return
        self._counted = True
        try:
            async with asyncio.timeout(seconds):
                await loop.create_connection(lambda: self, target.host, target.port, ssl=tls)
        except TimeoutError:
            self._fail(f"broker {target} did not answer within {seconds:g} s")
        except (OSError, ValueError) as error:
            # ValueError: its name is none that can be asked for.
            self._fail(f"broker {target} cannot be reached: {error!s}")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._ended:
            self.transport.abort()
            return
        self._timer = call_later(self._proxy.options.broker_s, self._late)
        if not self._client.takes:
            self.stop_reading()
        self.transport.write(self._introduction)

    @property
    def _opened(self) -> bool:
        return hasattr(self, "transport")

    def stop_reading(self) -> None:
        if self._opened:
            super().stop_reading()

    def go_on_reading(self) -> None:
        if self._opened:
            super().go_on_reading()

    def _late(self) -> None:
        if not self._greeted:
            self._fail(f"broker {self._target} has not answered CONNECT")

    def _parse(self) -> None:
        if self._ended:
            return
        at = 0
        try:
            while self._parses and (found := next_frame(self._rest, at, self._most)):
                kind, command, end = found
                if self._greeted:
                    self._answer(kind, command)
                elif kind == Type.CONNECTED:
                    self._greeted = True
                    self._welcome(at)
                elif kind == Type.ERROR:
                    self._fail(command.error.message, command.error.error)
                else:
                    self._fail(f"broker {self._target} asks for further credentials")
                at = end
        except FrameError as error:
            self._fail(f"broker {self._target} sent an illegal frame: {error}")
        if self._other is None:
            del self._rest[:at]

    @property
    def _most(self) -> int:
        """Bytes that the next frame may have."""
        return self._proxy.options.answer_bytes_max if self._greeted else CONNECT_BYTES_MAX

    @property
    def _parses(self) -> bool:
        return not self._ended and self._other is None

    @abstractmethod
    def _welcome(self, at: int) -> None:
        """The broker's CONNECTED is at `_rest[at]`."""

    @abstractmethod
    def _answer(self, kind: int, command: pb.BaseCommand) -> None:
        """A frame of the broker."""

    @abstractmethod
    def _failed(self, reason: str, code: pb.ServerError | None) -> None:
        """Tells the client's session."""

    def _fail(self, reason: str, code: pb.ServerError | None = None) -> None:
        if not self._ended:
            self.end()
            self._failed(reason, code)

    def end(self) -> None:
        """Closes the socket; the session is told nothing."""
        self._ended = True
        self._let_go()
        self._client.left(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._opened:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        if self._other is None:
            self._fail(f"broker {self._target} has closed the connection")
        super().connection_lost(exc)

    def _let_go(self) -> None:
        if self._counted:
            self._counted = False
            self._proxy.give_link_back()


class BrokerTunnel(BrokerLink):
    """A connection to the broker that a client has named."""

    def _welcome(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._client.joined(self, bytes(self._rest[at:]))

    def _answer(self, kind: int, command: pb.BaseCommand) -> None:
        raise AssertionError("it is spliced, or ended")

    def _failed(self, reason: str, code: pb.ServerError | None) -> None:
        self._client.session.unreached(reason, code)


class QuestionLink(BrokerLink):
    """A connection to a broker for questions."""

    def __init__(
        self,
        proxy: ProxyPort,
        shared: ReadBuffer,
        target: BrokerAddress,
        introduction: bytes,
        client: LinkOwner,
    ) -> None:
        super().__init__(proxy, shared, target, introduction, client)
        self._waiting: list[bytes] = []

    def ask(self, frame: bytes) -> None:
        """See `Link`."""
        if self._greeted:
            self.transport.write(frame)
        else:
            self._waiting.append(frame)

    def _welcome(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, []
        self.transport.writelines(waiting)

    def _answer(self, kind: int, command: pb.BaseCommand) -> None:
        if kind == Type.PING:
            self.transport.write(commands.PONG)
        elif kind == Type.AUTH_CHALLENGE:
            self._client.session.ended_at_a_broker()
            self._fail("the client's credentials have expired")
        elif not self._client.session.lookups.answered(self._target, kind, command) and kind != Type.PONG:
            self._fail(f"broker {self._target} sent what was not asked for")

    def _failed(self, reason: str, code: pb.ServerError | None) -> None:
        # Only a refusal of the client itself is final: another broker may have what this one lacks.
        final = code if code in _OF_THE_CLIENT else None
        self._client.session.lookups.lost(self._target, reason, final)

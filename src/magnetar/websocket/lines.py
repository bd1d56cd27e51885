"""All connections to brokers of one WebSocket: one to this broker, and one to each other owner of its topics.

The connection to this broker is there from the handshake on. It authenticates the client, and answers how
many partitions a topic has. On a cluster of several brokers a topic, or a partition, may be another broker's:
then its producer or consumer is opened there. When that broker is lost or gives the topic up, the producer or
consumer is opened anew, where the topic is by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar.auth.identity import Credentials
from magnetar.base.errors import MagnetarError
from magnetar.base.names import TopicName
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.websocket.asking_line import AskingLine
from magnetar.websocket.errors import RefusedByBrokerError
from magnetar.websocket.far_line import FarLine
from magnetar.websocket.far_lines import FarLines, unreachable
from magnetar.websocket.line import Line
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import ClientEvent


class SocketLines:
    """The connections of one WebSocket."""

    def __init__(
        self,
        home: Line,
        places: FarLines,
        *,
        hear: Callable[[ClientEvent], None],
        lost: Callable[[AskingLine], None],
    ) -> None:
        """`home` leads to this broker. `lost` is called when another broker ended a connection."""
        self.home = home
        self._places = places
        self._hear = hear
        self._lost = lost
        self._far: dict[str, FarLine] = {}
        """By the id of the broker."""
        self._turn = asyncio.Lock()
        self._credentials: tuple[Credentials, str] = (Credentials(""), "")
        self._secure = False
        self._certificate = False

    async def connect(
        self, credentials: Credentials, original_role: str, *, secure: bool, certificate: bool
    ) -> None:
        """Shows the credentials to this broker; other brokers get the same. `secure`: the client came over
        TLS. `certificate`: its certificate is its only credential. Raises RefusedByBrokerError,
        LineClosedError."""
        self._credentials = credentials, original_role
        self._secure, self._certificate = secure, certificate
        await self.home.connect(credentials, original_role)

    async def to(self, topic: TopicName) -> AskingLine:
        """The connection to the broker that serves a topic. Raises RefusedByBrokerError, LineClosedError."""
        owners = self.home.broker.owners
        if owners is None:
            return self.home
        try:
            place = await owners.locate(topic, authoritative=False)
        except MagnetarError as error:
            raise unreachable(str(error)) from error
        if place.urls is None:
            return self.home
        line = await self._line_of(place.urls)
        if place.redirect:
            await line.claim(topic)
        return line

    async def _line_of(self, urls: BrokerUrls) -> FarLine:
        # One connection for all topics of a broker, however many are opened at once.
        async with self._turn:
            known = self._far.get(urls.broker_id)
            if known is not None and not known.closed:
                return known
            if self._certificate:
                raise RefusedByBrokerError(
                    pb.ServiceNotReady,
                    f"the topic is at broker {urls.broker_id}, which a client certificate cannot be shown to:"
                    " connect there, or use a token",
                )
            self._places.take()
            made = FarLine(
                self.home.broker.config.message_bytes_max,
                hear=self._hear,
                ended=lambda reason: self._ended(urls.broker_id, made),
                trust_certs=self.home.broker.config.trust_certs,
            )
            self._far[urls.broker_id] = made
            try:
                await made.open(urls.addresses, secure=self._secure)
                await made.connect(*self._credentials)
            except BaseException:
                self._forget(urls.broker_id, made)
                made.end()
                raise
            return made

    def _ended(self, broker_id: str, line: FarLine) -> None:
        if self._forget(broker_id, line):
            self._lost(line)

    def _forget(self, broker_id: str, line: FarLine) -> bool:
        if self._far.get(broker_id) is not line:
            return False
        del self._far[broker_id]
        self._places.give_back()
        return True

    async def readable(self) -> None:
        """Returns while all brokers take more of this client."""
        for line in (self.home, *self._far.values()):
            await line.readable.wait()

    def end(self) -> None:
        """Ends all of them."""
        for broker_id, line in list(self._far.items()):
            self._forget(broker_id, line)
            line.end()
        self.home.end()

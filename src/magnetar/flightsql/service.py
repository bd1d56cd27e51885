"""Answers calls of Flight SQL: whose they are, what they may, and where their rows come from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from google.protobuf.message import Message

from magnetar.admin.calls.errors import NotImplementedHereError, TooMuchUsedError
from magnetar.admin.sql.query_callers import check_rights, reading_of
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.http_credentials import credentials_of
from magnetar.auth.identity import Credentials, Identity
from magnetar.broker.service import Broker
from magnetar.flightsql import flight_pb2 as pb
from magnetar.flightsql.commands import (
    FactsAsk,
    FlightAsk,
    NamesAsk,
    StatementAsk,
    packed,
    parsed,
    read_command,
    read_descriptor,
    read_prepared,
)
from magnetar.flightsql.grpc_messages import UNIMPLEMENTED, GrpcError, framed
from magnetar.flightsql.visible_names import rows_of
from magnetar.sql.packages import check_packages
from magnetar.sql.serving.query_frames import FLIGHT, SCHEMA
from magnetar.sql.serving.query_places import AskedQuery, QueryPlaces, RunningQuery

PREFIX: Final = "/arrow.flight.protocol.FlightService/"
_BEARER_OF_USER: Final = "Bearer user."
"""How a handshake writes a user's credentials: clients take only what begins with `Bearer` as its result."""
_UNKNOWN: Final = -1
"""A number of rows or bytes that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightCall:
    """A call whose message is there."""

    method: str
    """The last part of its path."""
    message: bytes
    authorization: str
    """The header; "": none."""
    peer: str
    """Address and port of the client."""
    secure: bool
    """Whether it came over TLS."""


@dataclass(frozen=True, slots=True)
class FlightAnswer:
    """An answer that ends well, unless its pieces raise an error."""

    pieces: AsyncIterator[bytes]
    """Messages with their prefixes, cut anywhere."""
    headers: Mapping[str, str] = field(default_factory=dict)
    close: Callable[[], None] = lambda: None
    """Called when all is sent, or cannot be."""


class FlightService:
    """All calls of a broker's port."""

    def __init__(self, broker: Broker, queries: QueryPlaces) -> None:
        self._broker = broker
        self._queries = queries
        self._methods: dict[
            str, Callable[[FlightCall, Identity | None], Coroutine[object, object, FlightAnswer]]
        ] = {
            "Handshake": self._handshake,
            "GetFlightInfo": self._info,
            "GetSchema": self._schema,
            "DoGet": self._get,
            "DoAction": self._action,
            "ListActions": self._actions,
        }

    def answers(self, method: str) -> bool:
        """Whether a method is answered: the message of another one is not read."""
        return method in self._methods

    @property
    def methods(self) -> frozenset[str]:
        """The methods that are answered."""
        return frozenset(self._methods)

    async def answer(self, call: FlightCall) -> FlightAnswer:
        """Raises MagnetarError."""
        method = self._methods.get(call.method)
        if method is None:
            raise GrpcError(
                UNIMPLEMENTED, f"{call.method[:100]!r} is not offered: queries read, and nothing else"
            )
        identity = await self._identity(call)
        owner = identity.role if identity is not None else call.peer.rpartition(":")[0]
        quotas = self._broker.quotas
        if rest_ms := quotas.count(owner, 0):
            raise TooMuchUsedError(owner, rest_ms)
        quotas.count(owner, 1)
        return await quotas.timing(owner, method(call, identity))

    async def _identity(self, call: FlightCall) -> Identity | None:
        guard = self._broker.guard
        if guard is None:
            return None
        try:
            credentials = credentials_of(
                _as_sent(call.authorization), "", certificate_role=None, takes_certificates=False
            )
        except AuthenticationError as error:
            guard.refused_credentials(Credentials(""), call.peer, error)
            raise
        identity = await guard.identify(credentials, call.peer)
        if identity.role in guard.authentication.proxy_roles:
            raise AuthenticationError("a proxy speaks for others, and there is none for Flight SQL")
        return identity

    # ------------------------------------------------------------ methods

    async def _handshake(self, call: FlightCall, identity: Identity | None) -> FlightAnswer:
        """Tells a client how it shows its credentials from now on: there are no sessions."""
        parsed(pb.HandshakeRequest, call.message)
        scheme, _, rest = call.authorization.partition(" ")
        shown = f"{_BEARER_OF_USER}{rest.strip()}" if scheme.lower() == "basic" else call.authorization
        return _message(pb.HandshakeResponse(), {"authorization": shown} if shown else {})

    async def _info(self, call: FlightCall, identity: Identity | None) -> FlightAnswer:
        ask, command = read_descriptor(call.message)
        if isinstance(ask, StatementAsk):
            ticket = pb.TicketStatementQuery(statement_handle=ask.statement.encode())
            command = packed("TicketStatementQuery", ticket)
        return _message(
            pb.FlightInfo(
                flight_descriptor=pb.FlightDescriptor.FromString(call.message),
                endpoint=[pb.FlightEndpoint(ticket=pb.Ticket(ticket=command))],
                total_records=_UNKNOWN,
                total_bytes=_UNKNOWN,
            )
        )

    async def _schema(self, call: FlightCall, identity: Identity | None) -> FlightAnswer:
        ask, _ = read_descriptor(call.message)
        if not isinstance(ask, StatementAsk):
            raise GrpcError(UNIMPLEMENTED, "GetSchema answers for statements")
        return _message(pb.SchemaResult(schema=await self._columns(call, identity, ask.statement)))

    async def _get(self, call: FlightCall, identity: Identity | None) -> FlightAnswer:
        ask = read_command(parsed(pb.Ticket, call.message).ticket)
        query = await self._begun(call, identity, ask, FLIGHT)
        return FlightAnswer(query.pieces(), close=query.close)

    async def _action(self, call: FlightCall, identity: Identity | None) -> FlightAnswer:
        action = parsed(pb.Action, call.message)
        if action.type == "CreatePreparedStatement":
            statement = read_prepared(action.body)
            result = pb.ActionCreatePreparedStatementResult(
                prepared_statement_handle=statement.encode(),
                dataset_schema=await self._columns(call, identity, statement),
            )
            return _message(pb.Result(body=packed("ActionCreatePreparedStatementResult", result)))
        if action.type == "ClosePreparedStatement":
            return FlightAnswer(_pieces())
        if action.type == "CloseSession":
            closed = pb.CloseSessionResult(status=pb.CloseSessionResult.CLOSED)
            return _message(pb.Result(body=closed.SerializeToString()))
        raise GrpcError(UNIMPLEMENTED, f"the action {action.type[:100]!r} is not offered")

    async def _actions(self, call: FlightCall, identity: Identity | None) -> FlightAnswer:
        offered = [
            pb.ActionType(type=name, description=description).SerializeToString()
            for name, description in ACTIONS.items()
        ]
        return FlightAnswer(_pieces(*map(framed, offered)))

    # ------------------------------------------------------------ queries

    async def _columns(self, call: FlightCall, identity: Identity | None, statement: str) -> bytes:
        query = await self._begun(call, identity, StatementAsk(statement), SCHEMA)
        try:
            return b"".join([piece async for piece in query.pieces()])
        finally:
            query.close()

    async def _begun(
        self, call: FlightCall, identity: Identity | None, ask: FlightAsk, form: str
    ) -> RunningQuery:
        """A query whose caller has the rights that it needs, and which reads. Raises MagnetarError."""
        if not self._queries.bounds.queries_max:
            raise NotImplementedHereError("this broker answers no SQL", remedy="set sql_queries_max")
        reading = reading_of(self._broker, identity, _as_sent(call.authorization), secure=call.secure)
        check_packages()
        query = await self._queries.begin(
            AskedQuery(
                owner=identity.role if identity is not None else call.peer.rpartition(":")[0],
                statement=ask.statement if isinstance(ask, StatementAsk) else "",
                form=form,
                table=ask.kind if isinstance(ask, FactsAsk | NamesAsk) else "",
                ids=list(ask.ids) if isinstance(ask, FactsAsk) else [],
            )
        )
        try:
            await check_rights(self._broker, identity, call.peer, query.topics)
            if isinstance(ask, NamesAsk):
                rows = await rows_of(self._broker, identity, ask)
                reading = replace(reading, rows=rows, with_columns=ask.include_schema)
            await query.read(reading)
        except BaseException:
            query.close()
            raise
        return query


ACTIONS: Final = {
    "CreatePreparedStatement": "Tells the columns of a statement; its handle is the statement.",
    "ClosePreparedStatement": "Does nothing: no statement is kept.",
    "CloseSession": "Does nothing: there are no sessions.",
}


def _as_sent(authorization: str) -> str:
    """The header as the caller sent it before a handshake."""
    if authorization.startswith(_BEARER_OF_USER):
        return f"Basic {authorization[len(_BEARER_OF_USER) :]}"
    return authorization


def _message(message: Message, headers: Mapping[str, str] | None = None) -> FlightAnswer:
    return FlightAnswer(_pieces(framed(message.SerializeToString())), headers or {})


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece

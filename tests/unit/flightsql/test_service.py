"""Calls of Flight SQL: every method and command, with every caller; rights before reading."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.protobuf.message import Message

from magnetar.admin.calls.errors import status_of
from magnetar.auth.authentication import Authentication
from magnetar.auth.token import TokenProvider, new_token, secret_key
from magnetar.base.errors import MagnetarError
from magnetar.base.query_bounds import QueryBounds
from magnetar.broker.listeners import Listeners
from magnetar.broker.service import BrokerConfig
from magnetar.flightsql import flight_pb2 as pb
from magnetar.flightsql import service as flight_service
from magnetar.flightsql.commands import COMMANDS, packed
from magnetar.flightsql.grpc_messages import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    OK,
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    GrpcError,
    code_of,
    framed,
)
from magnetar.flightsql.service import ACTIONS, FlightCall, FlightService
from magnetar.sql.serving import query_frames as frames
from support.admin_api import AdminApi, with_api
from support.queries import result, said

SECRET = b"s" * 32
T = "persistent://public/default/t"
STATEMENT = packed("CommandStatementQuery", pb.CommandStatementQuery(query="SELECT * FROM t"))
PREPARED = packed(
    "ActionCreatePreparedStatementRequest", pb.ActionCreatePreparedStatementRequest(query="SELECT * FROM t")
)
ROWS_OF_COMMANDS = dict.fromkeys(COMMANDS, pb.CommandGetKeys()) | {
    "CommandStatementQuery": pb.CommandStatementQuery(query="SELECT * FROM t"),
    "CommandPreparedStatementQuery": pb.CommandPreparedStatementQuery(prepared_statement_handle=b"SELECT 1"),
    "TicketStatementQuery": pb.TicketStatementQuery(statement_handle=b"SELECT * FROM t"),
}
OF_STATEMENTS = {name for name in COMMANDS if "Statement" in name}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is in another process, so its extra need not be there."""
    monkeypatch.setattr(flight_service, "check_packages", lambda: None)


class Caller:
    """Calls the service of a broker on fakes."""

    def __init__(self, api: AdminApi) -> None:
        api.broker.listeners = Listeners(plain_port=6650, http_port=8080)
        self.api = api
        self.service = FlightService(api.broker, api.queries)

    async def call(
        self, method: str, message: Message | bytes, authorization: str = ""
    ) -> tuple[int, bytes, dict[str, str]]:
        """Code, message or text of the error, headers."""
        data = message if isinstance(message, bytes) else message.SerializeToString()
        call = FlightCall(
            method=method, message=data, authorization=authorization, peer="127.0.0.1:5", secure=False
        )
        try:
            answer = await self.service.answer(call)
            try:
                body = b"".join([piece async for piece in answer.pieces])
            finally:
                answer.close()
        except GrpcError as error:
            return error.code, str(error).encode(), {}
        except MagnetarError as error:
            return code_of(status_of(error)), str(error).encode(), {}
        return OK, body, dict(answer.headers)


def with_caller(story: Callable[[Caller], Awaitable[None]], **given: Any) -> None:
    async def told(api: AdminApi) -> None:
        await story(Caller(api))

    with_api(told, **given)


def bearer(role: str, secret: bytes = SECRET) -> str:
    return f"Bearer {new_token(secret, role, now_s=1_000, lasts_s=None)}"


def guarded() -> dict[str, Any]:
    provider = TokenProvider(secret_key(SECRET), leeway_s=0)
    authentication = Authentication(
        {"token": provider}, proxy_roles=frozenset(("proxy",)), verify_original=False
    )
    return {"authentication": authentication, "superuser_roles": frozenset(("root",))}


async def grant(api: AdminApi, path: str, *actions: str) -> None:
    answer = await api.call(
        "POST", f"/admin/v2/{path}", list(actions), headers={"authorization": bearer("root")}
    )
    assert answer.status == 204


def descriptor(command: bytes) -> pb.FlightDescriptor:
    return pb.FlightDescriptor(type=pb.FlightDescriptor.CMD, cmd=command)


METHODS: dict[str, Message] = {
    "Handshake": pb.HandshakeRequest(),
    "GetFlightInfo": descriptor(STATEMENT),
    "GetSchema": descriptor(STATEMENT),
    "DoGet": pb.Ticket(ticket=STATEMENT),
    "DoAction": pb.Action(type="CreatePreparedStatement", body=PREPARED),
    "ListActions": pb.Action(),
}
READING = ("GetSchema", "DoGet", "DoAction")
"""Methods that read a topic: they need the right to consume."""
STRANGERS = {
    "anonymous": "",
    "wrong": bearer("root", b"x" * 32),
    "garbage": "Bearer root",
    "a user where there are none": f"Basic {base64.b64encode(b'root:root').decode()}",
    "the same after a handshake": f"Bearer user.{base64.b64encode(b'root:root').decode()}",
    "no scheme": "root",
    "proxy": bearer("proxy"),
}


def test_every_method_has_a_row() -> None:
    async def story(caller: Caller) -> None:
        assert caller.service.methods == METHODS.keys()

    with_caller(story)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_every_caller(method: str) -> None:
    async def story(caller: Caller) -> None:
        caller.api.processes.topics = [T]
        await grant(caller.api, "namespaces/public/default/permissions/reader", "consume")
        await grant(caller.api, "namespaces/public/default/permissions/writer", "produce")
        for name, authorization in STRANGERS.items():
            code, _, _ = await caller.call(method, METHODS[method], authorization)
            assert code == UNAUTHENTICATED, name
        assert not caller.api.processes.made, "no process is started for a stranger"
        for role in ("writer", "stranger"):
            code, text, _ = await caller.call(method, METHODS[method], bearer(role))
            assert code == (PERMISSION_DENIED if method in READING else OK)
            assert method not in READING or text == f"role {role!r} may not consume: {T}".encode()
        assert not caller.api.processes.read
        for role in ("reader", "root"):
            assert (await caller.call(method, METHODS[method], bearer(role)))[0] == OK
        assert len(caller.api.processes.read) == (2 if method in READING else 0)
        assert caller.api.queries.running == 0

    with_caller(story, **guarded())


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_with_every_caller(command: str) -> None:
    """Names and facts are told to each role: the names are those that it may consume."""

    async def story(caller: Caller) -> None:
        ticket = pb.Ticket(ticket=packed(command, ROWS_OF_COMMANDS[command]))
        caller.api.processes.topics = [T] if command in OF_STATEMENTS else []
        for name, authorization in STRANGERS.items():
            assert (await caller.call("DoGet", ticket, authorization))[0] == UNAUTHENTICATED, name
        assert not caller.api.processes.made
        code, _, _ = await caller.call("DoGet", ticket, bearer("stranger"))
        assert code == (PERMISSION_DENIED if command in OF_STATEMENTS else OK)
        if code == OK:
            assert caller.api.processes.read[-1].rows == []
        assert (await caller.call("DoGet", ticket, bearer("root")))[0] == OK
        assert caller.api.queries.running == 0

    with_caller(story, **guarded())


def test_who_may_consume_nothing_hears_no_names() -> None:
    async def story(caller: Caller) -> None:
        api = caller.api
        for name in ("one", "two"):
            path = f"/admin/v2/persistent/public/default/{name}"
            assert (await api.call("PUT", path, headers={"authorization": bearer("root")})).status == 204
        await grant(api, "namespaces/public/default/permissions/writer", "produce")
        await grant(api, "namespaces/public/default/permissions/reader", "consume")
        await grant(api, "persistent/public/default/one/permissions/guest", "consume")
        await grant(api, "persistent/public/default/gone/permissions/guest", "consume")
        tables = pb.Ticket(ticket=packed("CommandGetTables", pb.CommandGetTables()))
        for role, names in (("stranger", []), ("writer", []), ("guest", ["one"]), ("reader", ["one", "two"])):
            assert (await caller.call("DoGet", tables, bearer(role)))[0] == OK
            assert api.processes.read[-1].rows == [["public", "default", name] for name in names], role
            for kind, row in (
                ("CommandGetCatalogs", ["public"]),
                ("CommandGetDbSchemas", ["public", "default"]),
            ):
                await caller.call("DoGet", pb.Ticket(ticket=packed(kind, pb.CommandGetKeys())), bearer(role))
                assert api.processes.read[-1].rows == ([row] if names else []), (role, kind)

    with_caller(story, **guarded())


def test_names_by_patterns() -> None:
    async def story(caller: Caller) -> None:
        api = caller.api
        for name in ("a_1", "a_2", "ab1"):
            assert (await api.call("PUT", f"/admin/v2/persistent/public/default/{name}")).status == 204
        assert (
            await api.call("PUT", "/admin/v2/persistent/public/default/parts/partitions", 3)
        ).status == 204
        for given, names in (
            ({"table_name_filter_pattern": r"a\_%"}, ["a_1", "a_2"]),
            ({"table_name_filter_pattern": "a%1"}, ["a_1", "ab1"]),
            ({"catalog": "public", "table_name_filter_pattern": "ab1"}, ["ab1"]),
            ({"catalog": ""}, []),
            ({"catalog": "other"}, []),
            ({"db_schema_filter_pattern": "none"}, []),
            ({"db_schema_filter_pattern": "def%", "table_name_filter_pattern": "ab_"}, ["ab1"]),
            ({"table_types": ["VIEW"]}, []),
            ({"table_types": ["VIEW", "TABLE"], "table_name_filter_pattern": "ab1"}, ["ab1"]),
        ):
            message = pb.CommandGetTables(**given)
            assert (await caller.call("DoGet", pb.Ticket(ticket=packed("CommandGetTables", message))))[
                0
            ] == OK
            assert [row[2] for row in api.processes.read[-1].rows] == names, given

    with_caller(story)


def test_a_ticket_has_what_the_client_has_sent_and_no_state_is_kept() -> None:
    async def story(caller: Caller) -> None:
        _, body, _ = await caller.call("GetFlightInfo", descriptor(STATEMENT))
        info = pb.FlightInfo.FromString(body[5:])
        (endpoint,) = info.endpoint
        ticket = packed("TicketStatementQuery", pb.TicketStatementQuery(statement_handle=b"SELECT * FROM t"))
        assert endpoint.ticket.ticket == ticket
        assert (info.total_records, info.total_bytes) == (-1, -1)
        tables = packed("CommandGetTables", pb.CommandGetTables(include_schema=True))
        _, body, _ = await caller.call("GetFlightInfo", descriptor(tables))
        assert pb.FlightInfo.FromString(body[5:]).endpoint[0].ticket.ticket == tables
        assert not caller.api.processes.made, "nothing is computed before its rows are asked for"

    with_caller(story)


def test_rows_and_columns_come_from_the_process() -> None:
    async def story(caller: Caller) -> None:
        caller.api.processes.after = result(framed(b"1"), framed(b"2"))
        assert (await caller.call("DoGet", pb.Ticket(ticket=STATEMENT)))[1] == framed(b"1") + framed(b"2")
        caller.api.processes.after = result(b"schema")
        _, body, _ = await caller.call("DoAction", METHODS["DoAction"])
        name = "ActionCreatePreparedStatementResult"
        any_ = pb.Any.FromString(pb.Result.FromString(body[5:]).body)
        assert any_.type_url == f"type.googleapis.com/arrow.flight.protocol.sql.{name}"
        made = pb.ActionCreatePreparedStatementResult.FromString(any_.value)
        assert (made.prepared_statement_handle, made.dataset_schema) == (b"SELECT * FROM t", b"schema")
        _, body, _ = await caller.call("GetSchema", METHODS["GetSchema"])
        assert pb.SchemaResult.FromString(body[5:]).schema == b"schema"
        assert [each.form for each in caller.api.processes.asked] == ["flight", "schema", "schema"]

    with_caller(story)


def test_a_handshake_gives_back_what_was_shown() -> None:
    async def story(caller: Caller) -> None:
        shown = bearer("root")
        _, _, headers = await caller.call("Handshake", pb.HandshakeRequest(), shown)
        assert headers == {"authorization": shown}
        await caller.call("DoGet", pb.Ticket(ticket=STATEMENT), shown)
        (reading,) = caller.api.processes.read
        assert shown == f"Bearer {reading.token}"

    with_caller(story, **guarded())


def test_a_user_is_the_same_after_a_handshake() -> None:
    async def story(caller: Caller) -> None:
        user = base64.b64encode("ada:pass:wörd".encode()).decode()
        _, _, headers = await caller.call("Handshake", pb.HandshakeRequest(), f"Basic {user}")
        assert headers["authorization"].startswith("Bearer "), "some clients take nothing else"
        assert flight_service._as_sent(headers["authorization"]) == f"Basic {user}"

    with_caller(story)


def test_errors_have_their_codes() -> None:
    async def story(caller: Caller) -> None:
        ticket = pb.Ticket(ticket=STATEMENT)
        caller.api.processes.after = [said(frames.ERROR, {"status": 404, "reason": "no topic t"})]
        assert (await caller.call("DoGet", ticket))[:2] == (NOT_FOUND, b"no topic t")
        caller.api.processes.after = [
            *result(framed(b"1"))[:-1],
            said(frames.ERROR, {"status": 503, "reason": "x"}),
        ]
        assert (await caller.call("DoGet", ticket))[:2] == (UNAVAILABLE, b"x")
        assert (await caller.call("DoGet", b"\xff"))[0] == INVALID_ARGUMENT
        assert (await caller.call("DoPut", b""))[0] == UNIMPLEMENTED
        for name in ("BeginTransaction", "CancelQuery", "SetSessionOptions", "x" * 5_000):
            code, text, _ = await caller.call("DoAction", pb.Action(type=name))
            assert (code, len(text) < 200) == (UNIMPLEMENTED, True)
        assert caller.api.queries.running == 0

    with_caller(story)


@pytest.mark.parametrize("name", ["ClosePreparedStatement", "CloseSession"])
def test_nothing_is_to_be_closed(name: str) -> None:
    async def story(caller: Caller) -> None:
        assert name in ACTIONS
        assert (await caller.call("DoAction", pb.Action(type=name)))[0] == OK

    with_caller(story)


def test_it_is_off_with_the_queries() -> None:
    async def story(caller: Caller) -> None:
        code, text, _ = await caller.call("DoGet", pb.Ticket(ticket=STATEMENT))
        assert (code, text) == (UNIMPLEMENTED, b"this broker answers no SQL")

    with_caller(story, config=BrokerConfig(queries=QueryBounds(queries_max=0)))


def test_the_audit_names_the_topics(caplog: pytest.LogCaptureFixture) -> None:
    async def story(caller: Caller) -> None:
        caller.api.processes.topics = [T]
        await caller.call("DoGet", pb.Ticket(ticket=STATEMENT), bearer("root"))

    with caplog.at_level(logging.INFO, "magnetar.audit"):
        with_caller(story, **guarded())
    assert f"queried: role 'root' of 127.0.0.1:5: {T}" in caplog.text
    assert json.dumps(STATEMENT.decode("latin-1")) not in caplog.text

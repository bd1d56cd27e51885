"""What a client of Flight SQL asks for. Pure.

A descriptor (GetFlightInfo), a ticket (DoGet) and the body of an action carry an `Any` with one of the
commands of Flight SQL. No state of a client is kept: a ticket and the handle of a prepared statement are
what the client itself has sent.

Source: Arrow's Flight SQL, `FlightSql.proto`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar.flightsql import flight_pb2 as pb
from magnetar.flightsql.grpc_messages import INVALID_ARGUMENT, UNIMPLEMENTED, GrpcError

_URL: Final = "type.googleapis.com/arrow.flight.protocol.sql."
_NAME_CHARS_MAX: Final = 100
"""Characters of a client's name for something that are told in an error."""
IDS_MAX: Final = 1_000
"""Most ids of facts that a client asks for at once."""

_M = TypeVar("_M", bound=Message)


@dataclass(frozen=True, slots=True)
class FlightAsk:
    """What a command asks for."""


@dataclass(frozen=True, slots=True)
class StatementAsk(FlightAsk):
    """The rows of a statement."""

    statement: str


@dataclass(frozen=True, slots=True)
class FactsAsk(FlightAsk):
    """What is known without looking at topics."""

    kind: str
    """`sql_info`, `type_info`, `table_types`, `primary_keys` or `foreign_keys`."""
    ids: tuple[int, ...] = ()
    """Those that are wanted; empty: all."""


@dataclass(frozen=True, slots=True)
class NamesAsk(FlightAsk):
    """Names of catalogs (tenants), schemas (namespaces) or tables (topics)."""

    kind: str
    """`catalogs`, `schemas` or `tables`."""
    catalog: str | None = None
    """The only one that is wanted; None: all."""
    schema_pattern: str | None = None
    table_pattern: str | None = None
    table_types: tuple[str, ...] = ()
    """Empty: all."""
    include_schema: bool = False
    """Whether the columns of each table are wanted."""


def read_descriptor(data: bytes) -> tuple[FlightAsk, bytes]:
    """The command of a `FlightDescriptor`, and the ticket that asks for its rows. Raises GrpcError."""
    descriptor = parsed(pb.FlightDescriptor, data)
    if descriptor.type != pb.FlightDescriptor.CMD:
        raise GrpcError(INVALID_ARGUMENT, "a descriptor has a command of Flight SQL, and no path")
    return read_command(descriptor.cmd), descriptor.cmd


def read_command(data: bytes) -> FlightAsk:
    """The command of a ticket or descriptor. Raises GrpcError."""
    name, value = opened(data)
    reader = _COMMANDS.get(name)
    if reader is None:
        raise GrpcError(
            UNIMPLEMENTED, f"{name[:_NAME_CHARS_MAX]!r} is not answered: queries read, and nothing else"
        )
    return reader(value)


def opened(data: bytes) -> tuple[str, bytes]:
    """Name and bytes of the command in an `Any`. Raises GrpcError."""
    found = parsed(pb.Any, data)
    if not found.type_url.startswith(_URL):
        raise GrpcError(
            INVALID_ARGUMENT, f"{found.type_url[:_NAME_CHARS_MAX]!r} is not a command of Flight SQL"
        )
    return found.type_url[len(_URL) :], found.value


def packed(name: str, message: Message) -> bytes:
    """A command or result as an `Any`."""
    return bytes(pb.Any(type_url=_URL + name, value=message.SerializeToString()).SerializeToString())


def parsed(kind: type[_M], data: bytes) -> _M:
    """A message of a client. Raises GrpcError."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise GrpcError(INVALID_ARGUMENT, f"this is not a {kind.DESCRIPTOR.name}") from error


def statement_of(handle: bytes) -> str:
    """The statement of a handle. Raises GrpcError."""
    try:
        text = handle.decode()
    except UnicodeDecodeError as error:
        raise GrpcError(INVALID_ARGUMENT, "this is not the handle of a statement") from error
    statement = text.strip().rstrip(";")
    if not statement:
        raise GrpcError(INVALID_ARGUMENT, "the statement is empty")
    return statement


def _no_transaction(transaction: bytes) -> None:
    if transaction:
        raise GrpcError(UNIMPLEMENTED, "queries have no transactions")


def read_prepared(data: bytes) -> str:
    """The statement of the action CreatePreparedStatement. Raises GrpcError."""
    name, value = opened(data)
    if name != "ActionCreatePreparedStatementRequest":
        raise GrpcError(INVALID_ARGUMENT, "the action's body is none of preparing a statement")
    request = parsed(pb.ActionCreatePreparedStatementRequest, value)
    _no_transaction(request.transaction_id)
    return statement_of(request.query.encode())


def _statement(data: bytes) -> FlightAsk:
    command = parsed(pb.CommandStatementQuery, data)
    _no_transaction(command.transaction_id)
    return StatementAsk(statement_of(command.query.encode()))


def _prepared(data: bytes) -> FlightAsk:
    command = parsed(pb.CommandPreparedStatementQuery, data)
    return StatementAsk(statement_of(command.prepared_statement_handle))


def _ticket(data: bytes) -> FlightAsk:
    return StatementAsk(statement_of(parsed(pb.TicketStatementQuery, data).statement_handle))


def _sql_info(data: bytes) -> FlightAsk:
    command = parsed(pb.CommandGetSqlInfo, data)
    if len(command.info) > IDS_MAX:
        raise GrpcError(INVALID_ARGUMENT, f"{len(command.info):,} facts; {IDS_MAX:,} are the most at once")
    return FactsAsk("sql_info", tuple(command.info))


def _type_info(data: bytes) -> FlightAsk:
    command = parsed(pb.CommandGetXdbcTypeInfo, data)
    return FactsAsk("type_info", (command.data_type,) if command.HasField("data_type") else ())


def _schemas(data: bytes) -> FlightAsk:
    command = parsed(pb.CommandGetDbSchemas, data)
    return NamesAsk(
        "schemas",
        command.catalog if command.HasField("catalog") else None,
        command.db_schema_filter_pattern if command.HasField("db_schema_filter_pattern") else None,
    )


def _tables(data: bytes) -> FlightAsk:
    command = parsed(pb.CommandGetTables, data)
    return NamesAsk(
        "tables",
        command.catalog if command.HasField("catalog") else None,
        command.db_schema_filter_pattern if command.HasField("db_schema_filter_pattern") else None,
        command.table_name_filter_pattern if command.HasField("table_name_filter_pattern") else None,
        tuple(command.table_types),
        command.include_schema,
    )


_COMMANDS: Final[Mapping[str, Callable[[bytes], FlightAsk]]] = {
    "CommandStatementQuery": _statement,
    "CommandPreparedStatementQuery": _prepared,
    "TicketStatementQuery": _ticket,
    "CommandGetSqlInfo": _sql_info,
    "CommandGetXdbcTypeInfo": _type_info,
    "CommandGetCatalogs": lambda _: NamesAsk("catalogs"),
    "CommandGetDbSchemas": _schemas,
    "CommandGetTables": _tables,
    "CommandGetTableTypes": lambda _: FactsAsk("table_types"),
    "CommandGetPrimaryKeys": lambda _: FactsAsk("primary_keys"),
    "CommandGetExportedKeys": lambda _: FactsAsk("foreign_keys"),
    "CommandGetImportedKeys": lambda _: FactsAsk("foreign_keys"),
    "CommandGetCrossReference": lambda _: FactsAsk("foreign_keys"),
}
COMMANDS: Final = frozenset(_COMMANDS)
"""The commands that are answered."""


def like(text: str, pattern: str | None) -> bool:
    """Whether a text is like a pattern with `%`, `_` and the escape `\\`. None: every text is.

    The time is bounded by the product of the lengths.
    """
    if pattern is None:
        return True
    signs = list(_signs(pattern))
    # `star`: the last %, and the place in the text up to which it reaches so far.
    at = sign = 0
    star, reached = -1, 0
    while at < len(text):
        if sign < len(signs) and signs[sign] == "%":
            star, reached = sign, at
            sign += 1
        elif sign < len(signs) and signs[sign] in ("_", "=" + text[at]):
            at += 1
            sign += 1
        elif star >= 0:
            reached += 1
            at, sign = reached, star + 1
        else:
            return False
    return all(each == "%" for each in signs[sign:])


def _signs(pattern: str) -> list[str]:
    """`%`, `_`, and characters that stand for themselves with `=` before them."""
    found: list[str] = []
    escaped = False
    for character in pattern:
        if escaped or character not in "%_\\":
            found.append(f"={character}")
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            found.append(character)
    return found

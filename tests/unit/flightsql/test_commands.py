"""Commands of Flight SQL, and what is none."""

from __future__ import annotations

import re
import time

import pytest

from magnetar.flightsql import flight_pb2 as pb
from magnetar.flightsql.commands import (
    COMMANDS,
    FactsAsk,
    NamesAsk,
    StatementAsk,
    like,
    packed,
    read_command,
    read_descriptor,
    read_prepared,
)
from magnetar.flightsql.grpc_messages import INVALID_ARGUMENT, UNIMPLEMENTED, GrpcError

EMPTY = pb.CommandGetKeys()
ROWS = {
    "CommandStatementQuery": (pb.CommandStatementQuery(query=" SELECT 1; "), StatementAsk("SELECT 1")),
    "CommandPreparedStatementQuery": (
        pb.CommandPreparedStatementQuery(prepared_statement_handle=b"SELECT 1"),
        StatementAsk("SELECT 1"),
    ),
    "TicketStatementQuery": (
        pb.TicketStatementQuery(statement_handle="SELECT 'ä'".encode()),
        StatementAsk("SELECT 'ä'"),
    ),
    "CommandGetSqlInfo": (pb.CommandGetSqlInfo(info=[0, 500]), FactsAsk("sql_info", (0, 500))),
    "CommandGetXdbcTypeInfo": (pb.CommandGetXdbcTypeInfo(data_type=0), FactsAsk("type_info", (0,))),
    "CommandGetCatalogs": (EMPTY, NamesAsk("catalogs")),
    "CommandGetDbSchemas": (
        pb.CommandGetDbSchemas(catalog="", db_schema_filter_pattern="a%"),
        NamesAsk("schemas", "", "a%"),
    ),
    "CommandGetTables": (
        pb.CommandGetTables(
            catalog="a", table_name_filter_pattern="t", table_types=["VIEW"], include_schema=True
        ),
        NamesAsk("tables", "a", None, "t", ("VIEW",), include_schema=True),
    ),
    "CommandGetTableTypes": (EMPTY, FactsAsk("table_types")),
    "CommandGetPrimaryKeys": (EMPTY, FactsAsk("primary_keys")),
    "CommandGetExportedKeys": (EMPTY, FactsAsk("foreign_keys")),
    "CommandGetImportedKeys": (EMPTY, FactsAsk("foreign_keys")),
    "CommandGetCrossReference": (EMPTY, FactsAsk("foreign_keys")),
}


def test_every_command_has_a_row() -> None:
    assert ROWS.keys() == COMMANDS


@pytest.mark.parametrize("name", ROWS)
def test_a_command_is_read_from_descriptor_and_ticket(name: str) -> None:
    message, ask = ROWS[name]
    data = packed(name, message)
    assert read_command(data) == ask
    descriptor = pb.FlightDescriptor(type=pb.FlightDescriptor.CMD, cmd=data)
    assert read_descriptor(descriptor.SerializeToString()) == (ask, data)


def test_an_absent_filter_is_none_and_not_an_empty_text() -> None:
    assert read_command(packed("CommandGetTables", pb.CommandGetTables())) == NamesAsk("tables")
    assert read_command(packed("CommandGetXdbcTypeInfo", EMPTY)) == FactsAsk("type_info")


def refused(data: bytes) -> int:
    with pytest.raises(GrpcError) as told:
        read_command(data)
    return told.value.code


@pytest.mark.parametrize(
    "name",
    [
        "CommandStatementUpdate",
        "CommandPreparedStatementUpdate",
        "CommandStatementSubstraitPlan",
        "CommandStatementIngest",
        "Unknown",
        "",
    ],
)
def test_what_does_not_read_is_not_offered(name: str) -> None:
    assert refused(packed(name, EMPTY)) == UNIMPLEMENTED


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff\xff",
        pb.Any(type_url="type.googleapis.com/other.Command").SerializeToString(),
        pb.Any(
            type_url="type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery", value=b"\xff"
        ).SerializeToString(),
        packed("CommandStatementQuery", pb.CommandStatementQuery(query=" ; ")),
        packed("TicketStatementQuery", pb.TicketStatementQuery(statement_handle=b"\xff")),
        packed("CommandGetSqlInfo", pb.CommandGetSqlInfo(info=range(1_001))),
    ],
)
def test_what_is_no_command(data: bytes) -> None:
    assert refused(data) == INVALID_ARGUMENT


def test_transactions_are_not_passed_over() -> None:
    query = pb.CommandStatementQuery(query="SELECT 1", transaction_id=b"t")
    assert refused(packed("CommandStatementQuery", query)) == UNIMPLEMENTED
    prepared = pb.ActionCreatePreparedStatementRequest(query="SELECT 1", transaction_id=b"t")
    with pytest.raises(GrpcError, match="no transactions"):
        read_prepared(packed("ActionCreatePreparedStatementRequest", prepared))


def test_paths_are_no_commands() -> None:
    for descriptor in (
        pb.FlightDescriptor(),
        pb.FlightDescriptor(type=pb.FlightDescriptor.PATH, path=["orders"]),
    ):
        with pytest.raises(GrpcError, match="no path"):
            read_descriptor(descriptor.SerializeToString())


def test_preparing_takes_its_own_body() -> None:
    with pytest.raises(GrpcError, match="none of preparing"):
        read_prepared(packed("CommandStatementQuery", pb.CommandStatementQuery(query="SELECT 1")))


@pytest.mark.parametrize("pattern", ["", "%", "_", "a", "a%", "%a", "a_c", "%b%", "%%", "a%c%", "_%_", "abc"])
@pytest.mark.parametrize("text", ["", "a", "b", "ab", "abc", "aabc", "abcabc", "c"])
def test_patterns_are_those_of_sql(text: str, pattern: str) -> None:
    expected = re.fullmatch(pattern.replace("%", ".*").replace("_", "."), text) is not None
    assert like(text, pattern) == expected


def test_an_escaped_sign_is_itself() -> None:
    assert like("a_b", r"a\_b")
    assert not like("axb", r"a\_b")
    assert like("100%", r"100\%")
    assert like("a\\b", r"a\\b")
    assert like("anything", None)


def test_a_hostile_pattern_takes_no_time() -> None:
    began = time.process_time()
    assert not like("a" * 255, "%a" * 2_000 + "b")
    assert time.process_time() - began < 2, "exponential or cubic"

"""Unmodified clients of Flight SQL: Arrow's ADBC driver, which Python tools use, and its JDBC driver, which
DBeaver and others use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import pytest

from support import java_client
from support.standalone import StandaloneProcess

HERE = Path(__file__).parent
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "amount", "type": "int"}],
}
ORDERS = (("tea", 1), ("tea", 2), ("coffee", 5))
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.one_process("own"),
    # The driver warns that this server has no transactions to switch off.
    pytest.mark.filterwarnings("ignore:Cannot disable autocommit"),
]


class Served:
    """A broker with a topic, over TLS and with tokens, and without."""

    def __init__(self, folder: Path, *, secure: bool) -> None:
        self.folder = folder
        self.environment = {"MAGNETAR_FLIGHT_SQL": "true", "MAGNETAR_FLIGHT_SQL_PORT": "0"}
        self.options: tuple[str, ...] = ()
        self.secured = folder / "secure" if secure else None
        if self.secured is not None:
            run("secure", "init", str(self.secured), "--role", "reader", "--role", "stranger")
            self.options = ("--config", str(self.secured / "secure.toml"))
            self.environment |= {"MAGNETAR_BROKER_TLS_PORT": "0", "MAGNETAR_HTTPS_PORT": "0"}
        self.process = StandaloneProcess(folder, options=self.options, environment=self.environment)

    def token(self, role: str) -> str:
        assert self.secured is not None
        return (self.secured / "tokens" / f"{role}.token").read_text().strip()

    @property
    def ready(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "ready.json").read_text()))

    def fill(self) -> None:
        definition = self.folder / "order.avsc"
        definition.write_text(json.dumps(SCHEMA))
        at = ["--url", self.process.broker_url, "--admin-url", self.process.http_url]
        if self.secured is not None:
            at += ["--token", self.token("admin")]
        run("schemas", "upload", "orders", "--type", "json", "--file", str(definition), *at)
        texts = [json.dumps({"item": item, "amount": amount}) for item, amount in ORDERS]
        run("produce", "orders", *texts, "--key", "ada", *at)
        if self.secured is not None:
            run("namespaces", "grant", "public/default", "reader", "--action", "consume", *at)

    def connect(self, role: str = "reader") -> Any:
        options = {}
        if self.secured is not None:
            options = {
                "adbc.flight.sql.authorization_header": f"Bearer {self.token(role)}",
                "adbc.flight.sql.client_option.tls_root_certs": (self.secured / "ca.pem").read_text(),
            }
        url = self.ready["flight_sql_url"].replace("127.0.0.1", "localhost").replace("grpc:", "grpc+tcp:")
        return flight_sql.connect(url, db_kwargs=options)

    def jdbc(self, role: str = "reader") -> str:
        address = self.ready["flight_sql_url"].partition("://")[2].replace("127.0.0.1", "localhost")
        more = "useEncryption=false"
        if self.secured is not None:
            authority = self.secured / "ca.pem"
            trust = f"useEncryption=true&tlsRootCerts={authority}&useSystemTrustStore=false"
            more = f"{trust}&token={self.token(role)}"
        return f"jdbc:arrow-flight-sql://{address}/?{more}"


def run(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "magnetar", *arguments], check=True, capture_output=True, timeout=120
    )


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "secure"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("flight"), secure=request.param)
    with made.process:
        made.fill()
        yield made


def test_adbc_reads_topics(served: Served) -> None:
    with served.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT item, sum(amount) AS total FROM orders GROUP BY item ORDER BY item")
        assert [(item, int(total)) for item, total in cursor.fetchall()] == [("coffee", 5), ("tea", 3)]
        cursor.execute("SELECT i, repeat('x', 1000) AS t FROM range(50000) AS t(i)")
        rows = cursor.fetch_arrow_table()
        assert (rows.num_rows, rows.column_names) == (50_000, ["i", "t"])
        assert sorted(rows.column("i").to_pylist()) == list(range(50_000))
        cursor.execute("SELECT key, amount FROM orders WHERE key = 'ada' AND amount > 1 ORDER BY amount")
        assert cursor.fetchall() == [(b"ada", 2), (b"ada", 5)]


def test_adbc_finds_topics_and_their_columns(served: Served) -> None:
    with served.connect() as connection:
        info = connection.adbc_get_info()
        assert info["vendor_name"] == "Magnetar"
        assert connection.adbc_get_table_types() == ["TABLE"]
        found = connection.adbc_get_objects(depth="tables", table_name_filter="ord%").read_all().to_pylist()
        # Without authentication the tenant of the brokers is there too.
        (catalog,) = (each for each in found if each["catalog_name"] == "public")
        schemas = {each["db_schema_name"]: each for each in catalog["catalog_db_schemas"]}
        schema = schemas["default"]
        assert [table["table_name"] for table in schema["db_schema_tables"]] == ["orders"]
        columns = connection.adbc_get_table_schema(
            "orders", catalog_filter="public", db_schema_filter="default"
        )
        assert columns.names[:4] == ["item", "amount", "value", "key"]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("SELECT * FROM nothing_here", "NotFound"),
        ("SELECT nonsense(", "InvalidArgument"),
        ("SELECT * FROM read_text('/etc/passwd')", "InvalidArgument"),
        ("INSERT INTO orders SELECT * FROM orders", "InvalidArgument"),
    ],
)
def test_adbc_hears_what_is_wrong(served: Served, statement: str, error: str) -> None:
    with served.connect() as connection, connection.cursor() as cursor:
        with pytest.raises(flight_sql.Error, match=error):
            cursor.execute(statement)
        cursor.execute("SELECT 1 AS one")
        assert cursor.fetchall() == [(1,)]


@pytest.mark.parametrize("served", [True], ids=["secure"], indirect=True)
def test_who_may_not_consume_reads_nothing(served: Served) -> None:
    assert served.secured is not None
    with served.connect("stranger") as connection:
        with connection.cursor() as cursor, pytest.raises(flight_sql.Error, match="may not consume"):
            cursor.execute("SELECT * FROM orders")
        assert connection.adbc_get_objects(depth="catalogs").read_all().to_pylist() == []
    url = served.ready["flight_sql_url"].replace("127.0.0.1", "localhost")
    authority = {"adbc.flight.sql.client_option.tls_root_certs": (served.secured / "ca.pem").read_text()}
    with (
        pytest.raises(flight_sql.Error, match="Unauthenticated"),
        flight_sql.connect(url, db_kwargs=authority) as connection,
    ):
        connection.adbc_get_info()


def test_jdbc_does_what_tools_do(served: Served, tmp_path: Path) -> None:
    try:
        path = java_client.class_path(HERE)
    except java_client.NotHereError as reason:
        pytest.skip(f"no JDBC driver: {reason}")
    subprocess.run(
        ["javac", "-proc:none", "-nowarn", "-cp", path, "-d", str(tmp_path), str(HERE / "Tool.java")],
        check=True,
    )
    command = [
        "java",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "-cp",
        f"{tmp_path}{os.pathsep}{path}",
        "Tool",
    ]
    ran = subprocess.run([*command, served.jdbc()], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = dict(line.split("\t") for line in ran.stdout.splitlines())
    assert told["sum"] == "coffee|5,tea|3"
    assert told["columns"].startswith("item|VARCHAR,amount|INTEGER,publish_time|TIMESTAMP")
    assert told["full name"] == "3"
    assert told["many"] == f"200000|{sum(range(200_000))}"
    assert told["product"] == "Magnetar|true"
    assert "public" in told["catalogs"].split(",")
    assert told["schemas"] == "default"
    assert (told["tables"], told["no views"], told["types"], told["keys"]) == (
        "orders|TABLE",
        "",
        "TABLE",
        "",
    )
    assert told["fields"].split(",")[:4] == ["item", "amount", "value", "key"]
    assert "no topic nothing_here" in told["unknown"]
    assert "syntax error" in told["wrong"].lower()
    assert "SELECT" in told["write"]
    assert "read_text" in told["file"]


def test_a_call_that_is_left_ends_its_query(served: Served) -> None:
    with served.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT i, repeat('x', 1000) AS t FROM range(1000000) AS t(i)")
        assert next(iter(cursor.fetch_record_batch())).num_rows
    with served.connect() as connection:
        # Its place is free again: as many as may run, one after the other.
        for _ in range(3):
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 AS one")
                assert cursor.fetchall() == [(1,)]

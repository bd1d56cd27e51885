"""The default installation, as `pip install .` makes it: hot modules compiled, no work tree in sight."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import build_twin
import pytest
import twin_build

from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("start")]

INSTALL_S = 400

_FOLLOW = """
import sys
import pulsar

client = pulsar.Client(sys.argv[1], operation_timeout_seconds=30)
names = [f"persistent://public/default/{place}.loot" for place in ("nyc", "sfo")]
for name in names:
    client.create_producer(name).send(name.encode())
consumer = client.subscribe(
    "persistent://public/default/*.loot",
    "s",
    consumer_type=pulsar.ConsumerType.Shared,
    initial_position=pulsar.InitialPosition.Earliest,
)
for _ in names:
    message = consumer.receive(30_000)
    consumer.acknowledge(message)
    print("got", message.data().decode())
client.close()
"""


def alone() -> dict[str, str]:
    """The environment without anything that leads Python to the work tree or chooses a twin."""
    return {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "MAGNETAR_PURE")}


def run(*command: str) -> str:
    """What the program printed; it must succeed."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_S, env=alone(), cwd="/", check=False
    )
    assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


@pytest.fixture(scope="module")
def python() -> Iterator[str]:
    """The interpreter of a new environment into which a copy of the sources was installed."""
    if not twin_build.has_compiler():
        pytest.skip("no C compiler here: the installation is the pure one, which all other tests run")
    with tempfile.TemporaryDirectory(prefix="magnetar-installed-") as name:
        sources, environment = Path(name) / "sources", Path(name) / "environment"
        sources.mkdir()
        build_twin.copy_sources(sources)
        run(sys.executable, "-m", "venv", str(environment))
        found = str(environment / "bin" / "python")
        site = run(found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        # Dependencies and what builds are those of the tests; the work tree does not come along so.
        # The old one of a new environment would come first.
        run(found, "-m", "pip", "--disable-pip-version-check", "uninstall", "-q", "-y", "setuptools")
        (Path(site) / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        pip = (found, "-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--no-deps")
        run(*pip, "--no-build-isolation", str(sources))
        yield found


def test_it_is_the_compiled_one_and_stands_alone(python: str) -> None:
    command = str(Path(python).with_name("magnetar"))
    assert "(compiled)" in run(command, "--version")
    where = run(python, "-c", "import magnetar; print(magnetar.__file__)").strip()
    assert where.startswith(str(Path(python).parents[1]))


def test_a_standalone_of_it_serves_wildcards_and_its_canary_sings(python: str, tmp_path: Path) -> None:
    settings = {"MAGNETAR_CANARY_NAMESPACES": "public/default", "MAGNETAR_CANARY_INTERVAL_SECONDS": "1"}
    broker = StandaloneProcess(tmp_path, python=python, environment=settings)
    broker.environment = {**alone(), **settings}
    with broker:
        # Between them stands what the client logs.
        lines = run(python, "-c", _FOLLOW, broker.broker_url).splitlines()
        got = [line.removeprefix("got ") for line in lines if line.startswith("got ")]
        assert sorted(got) == [f"persistent://public/default/{place}.loot" for place in ("nyc", "sfo")]

        def canary(name: str) -> float:
            with urlopen(f"{broker.http_url}/metrics") as answer:
                lines = answer.read().decode().splitlines()
            return sum(
                float(line.split()[-1]) for line in lines if line.startswith(f"magnetar_canary_{name}")
            )

        wait_until(lambda: canary("received_total") >= 2, 30, "canary's messages")
        assert canary("up") == 1
        assert canary("refused_total") == 0


_ASK = """
import adbc_driver_flightsql.dbapi, sys

with adbc_driver_flightsql.dbapi.connect(sys.argv[1]) as connection, connection.cursor() as cursor:
    cursor.execute("SELECT decode(value) AS v FROM orders ORDER BY v")
    print("got", [row[0] for row in cursor.fetchall()])
"""


def test_sql_of_it_by_the_command_over_http_and_for_tools(python: str, tmp_path: Path) -> None:
    settings = {"MAGNETAR_FLIGHT_SQL": "true", "MAGNETAR_FLIGHT_SQL_PORT": "0"}
    broker = StandaloneProcess(tmp_path, python=python, environment=settings)
    broker.environment = {**alone(), **settings}
    with broker:
        command = str(Path(python).with_name("magnetar"))
        at = ("--url", broker.broker_url, "--admin-url", broker.http_url)
        run(command, "produce", "orders", "tea", "coffee", *at)
        statement = "SELECT decode(value) AS v FROM orders ORDER BY v"
        expected = '{"v": "coffee"}\n{"v": "tea"}\n'
        assert run(command, "sql", statement, "-o", "json", *at) == expected
        asked = Request(f"{broker.http_url}/sql", json.dumps({"statement": statement}).encode())
        with urlopen(asked) as answer:
            assert answer.read().decode() == expected
        url = json.loads((tmp_path / "ready.json").read_text())["flight_sql_url"]
        told = run(python, "-W", "ignore", "-c", _ASK, url.replace("grpc:", "grpc+tcp:"))
        assert "got ['coffee', 'tea']" in told

"""`magnetar functions` and `magnetar packages`: the calls that they make."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.admin_server import FakeAdminServer
from magnetar.admin.calls.multipart import Multipart, PartBegins, PartBytes, boundary_of

F = "/admin/v3/functions/public/default/ex"


@pytest.fixture
def server() -> Iterator[FakeAdminServer]:
    with FakeAdminServer() as server:
        yield server


@pytest.fixture
def code(tmp_path: Path) -> Path:
    file = tmp_path / "ex.py"
    file.write_text("def process(input): ...\n")
    return file


def parts(server: FakeAdminServer) -> dict[str, tuple[str | None, bytes]]:
    """The parts of the last body: file name and bytes by name."""
    asked = server.asked[-1]
    parser, found = Multipart(boundary_of(asked.headers["content-type"])), {}
    for event in parser.feed(asked.body):
        if isinstance(event, PartBegins):
            name = event.name
            found[name] = (event.file_name, b"")
        elif isinstance(event, PartBytes):
            found[name] = (found[name][0], found[name][1] + event.data)
    parser.end()
    return found


def config(server: FakeAdminServer) -> Any:
    return json.loads(parts(server)["functionConfig"][1])


Run = Callable[..., Any]


def test_a_function_is_created_from_a_file(magnetar: Run, server: FakeAdminServer, code: Path) -> None:
    server.answers[f"POST {F}"] = None
    words = (
        "--input a --input b --output-topic o --parallelism 2 --guarantees effectively_once --from earliest"
    )
    more = "--retain-ordering --keep-subscriptions --retries 3 --log-topic l --subscription s"
    more += " --dead-letter-topic d"
    ended = magnetar(
        *("functions", "create", "ex", code, *words.split(), *more.split()),
        *("--user-config", '{"a": 1}', "--url", server.url),
    )
    assert (ended.code, ended.out) == (0, "ex is created\n"), ended.err
    assert parts(server)["data"] == ("ex.py", code.read_bytes())
    assert config(server) == {
        "className": "ex",
        "output": "o",
        "parallelism": 2,
        "subName": "s",
        "maxMessageRetries": 3,
        "deadLetterTopic": "d",
        "logTopic": "l",
        "inputs": ["a", "b"],
        "processingGuarantees": "EFFECTIVELY_ONCE",
        "subscriptionPosition": "Earliest",
        "retainOrdering": True,
        "userConfig": {"a": 1},
        "cleanupSubscription": False,
        "py": "ex.py",
    }


def test_a_package_and_a_file_of_settings(magnetar: Run, server: FakeAdminServer, tmp_path: Path) -> None:
    server.answers["POST /admin/v3/functions/a/b/c"] = None
    settings = tmp_path / "f.json"
    settings.write_text('{"className": "m.C", "inputs": ["x"], "output": "y"}')
    url = "function://public/default/ex@1"
    ended = magnetar(
        *("functions", "create", "a/b/c", "--config", settings, "--package", url, "--output-topic", "z"),
        *("--url", server.url, "-o", "json"),
    )
    assert (ended.code, ended.out) == (0, ""), ended.err
    assert parts(server)["url"] == (None, url.encode())
    assert config(server) == {"className": "m.C", "inputs": ["x"], "output": "z", "py": url}


def test_an_update_sends_what_was_given_only(magnetar: Run, server: FakeAdminServer, code: Path) -> None:
    server.answers[f"PUT {F}"] = None
    assert magnetar("functions", "update", "ex", "--parallelism", 3, "--url", server.url).code == 0
    assert config(server) == {"parallelism": 3}
    assert magnetar("functions", "update", "ex", code, "--url", server.url).code == 0
    assert config(server) == {"py": "ex.py"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("functions create ex missing.py", "missing.py cannot be read"),
        ("functions create ex --config missing.json", "missing.json cannot be read"),
        ("functions create ex --user-config [", "it is not JSON"),
        ("functions create ex --user-config []", "it is not a JSON object"),
        ("functions create ex x.py --package function://a/b/c", "give a file or a package, not both"),
        ("functions trigger ex", "give --value or --file"),
        ("functions get a/b", "write NAME or TENANT/NAMESPACE/NAME"),
        ("packages upload ex 1 missing.py", "missing.py cannot be read"),
    ],
)
def test_what_cannot_be_sent_is_said(magnetar: Run, words: str, said: str) -> None:
    ended = magnetar(*words.split(), "--url", "http://127.0.0.1:1")
    assert ended.code != 0
    assert said in " ".join(ended.err.split())


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("stop ex", f"POST {F}/stop"),
        ("start ex --instance 1", f"POST {F}/1/start"),
        ("restart ex", f"POST {F}/restart"),
        ("delete ex --yes", f"DELETE {F}"),
        ("put-state ex a/b --value v", f"POST {F}/state/a%2Fb"),
        ("trigger ex --value hi --topic in", f"POST {F}/trigger"),
    ],
)
def test_the_call_of_a_command(magnetar: Run, server: FakeAdminServer, words: str, call: str) -> None:
    server.answers[call] = None
    ended = magnetar("functions", *words.split(), "--url", server.url)
    assert ended.code == 0, ended.err
    assert f"{server.asked[-1].method} {server.asked[-1].path}" == call


def test_status_is_a_row_for_each_instance(magnetar: Run, server: FakeAdminServer) -> None:
    status = {
        "running": False,
        "error": "no code",
        "numRestarts": 4,
        "numReceived": 3,
        "numSuccessfullyProcessed": 2,
        "numUserExceptions": 1,
        "latestUserExceptions": [{"exceptionString": "first"}, {"exceptionString": "last"}],
    }
    server.answers[f"GET {F}/status"] = {"instances": [{"instanceId": 0, "status": status}]}
    ended = magnetar("functions", "status", "ex", "--url", server.url)
    assert ended.out.split() == [
        *("INSTANCE", "RUNNING", "RECEIVED", "PROCESSED", "FAILED", "RESTARTS", "ERROR"),
        *("0", "false", "3", "2", "1", "4", "no", "code"),
        *("Instance", "0,", "last", "exception:", "last"),
    ]
    [row] = json.loads(magnetar("functions", "status", "ex", "--url", server.url, "-o", "json").out)
    assert row["last_exception"] == "last"


def test_a_refusal_is_the_servers(magnetar: Run, server: FakeAdminServer, code: Path) -> None:
    server.answers[f"POST {F}"] = (400, {"reason": "Function ex already exists", "remedy": "update it"}, {})
    ended = magnetar("functions", "create", "ex", code, "--input", "a", "--url", server.url)
    assert ended.code != 0
    assert "Function ex already exists; update it" in ended.err


def test_packages(magnetar: Run, server: FakeAdminServer, code: Path, tmp_path: Path) -> None:
    base = "/admin/v3/packages/function/public/default"
    server.answers |= {
        f"GET {base}": ["ex"],
        f"GET {base}/ex": ["1.0", "2"],
        f"POST {base}/ex/1.0": None,
        f"DELETE {base}/ex/1.0": None,
        f"GET {base}/ex/1.0": {"any": "bytes"},
        f"GET {base}/ex/1.0/metadata": {"description": "what"},
        "GET /admin/v3/packages/sink/public/default": [],
    }
    at = ("--url", server.url)
    assert magnetar("packages", "list", "public/default", *at).out == "ex\n"
    assert magnetar("packages", "list", "public/default", "--type", "sink", *at).code == 0
    assert magnetar("packages", "versions", "ex", *at).out == "1.0\n2\n"
    ended = magnetar("packages", "upload", "ex", "1.0", code, "--description", "what", *at)
    assert ended.out == "ex@1.0 is uploaded\n", ended.err
    assert parts(server)["file"] == ("ex.py", code.read_bytes())
    assert json.loads(parts(server)["metadata"][1]) == {"description": "what", "contact": ""}
    assert "what" in magnetar("packages", "describe", "ex", "1.0", *at).out
    file = tmp_path / "back"
    assert magnetar("packages", "download", "ex", "1.0", file, *at).code == 0
    assert file.read_bytes() == b'{"any": "bytes"}'
    assert magnetar("packages", "delete", "ex", "1.0", "--yes", *at).out == "ex@1.0 is deleted\n"


def test_what_instances_wrote_is_shown_by_instance(magnetar: Run, server: FakeAdminServer) -> None:
    server.answers[f"GET {F}"] = {"parallelism": 2}
    for number, text in ((0, "a\nb\n"), (1, "c\n")):
        server.answers[f"GET {F}/{number}/output?start=0"] = {"begin": 0, "end": len(text), "text": text}
    shown = magnetar("functions", "logs", "ex", "--url", server.url)
    assert shown.out == "0| a\n0| b\n1| c\n", shown.err
    assert magnetar("functions", "logs", "ex", "--instance", "1", "--url", server.url).out == "c\n"

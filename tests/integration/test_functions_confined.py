"""The code of functions is kept from the server's files and within its limits; a refusal says what to do."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.functions.workers import landlock
from support.running_functions import RunningFunctions, running_functions, wait_for

pytestmark = [pytest.mark.process, pytest.mark.one_process("start")]

CODE = b'''
import os
import socket
import tempfile
import threading


def told(act):
    try:
        return str(act())
    except OSError as error:
        return type(error).__name__


def look(input: str, context):
    """Tries to reach what is not its own."""
    key, data, port = input.split()
    context.put_state("seen", "x")
    with tempfile.NamedTemporaryFile() as mine:
        written = told(lambda: mine.write(b"x"))
    return {
        "key": told(lambda: open(key).read()),
        "data": told(lambda: os.listdir(data)),
        "environment": told(lambda: open(f"/proc/{os.getppid()}/environ", "rb").read(1)),
        "memory": told(lambda: open(f"/proc/{os.getppid()}/mem", "rb").read(0)),
        "signal": told(lambda: os.kill(os.getppid(), 0)),
        "child": told(lambda: os.popen(f"cat {key}").read()),
        "mine": written,
        "listen": told(lambda: socket.create_server(("127.0.0.1", 0))),
        "thread": told(lambda: threading.Thread(target=int).start()),
        "peer": told(lambda: bool(socket.create_connection(("127.0.0.1", int(port))))),
    }


def forker(input):
    return os.fork()


def hungry(input):
    return len(bytearray(1 << 30))


def opener(input):
    files = [open("/dev/null") for _ in range(5000)]
    return len(files)
'''


@pytest.fixture
def peer() -> Iterator[int]:
    """A port of another program on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def looked(run: RunningFunctions, key: Path, port: int) -> dict[str, str]:
    """What `look` found."""
    run.create("look")
    run.fill_with("in-look", [f"{key} {run.process.data_dir} {port}".encode()])
    found: dict[str, str] = json.loads(run.results("out-look", 1)[0].value)
    return found


def settings(folder: Path, text: str) -> tuple[str, str]:
    """Options of a server with these settings."""
    path = folder / "settings.toml"
    path.write_text(text)
    return "--config", str(path)


def test_code_does_not_reach_the_servers_files_and_processes(tmp_path: Path, peer: int) -> None:
    key = tmp_path / "secret.key"
    key.write_text("secret")
    with running_functions(tmp_path, CODE) as run:
        found = looked(run, key, peer)
        assert [found.pop(each) for each in ("mine", "thread", "peer")] == ["1", "None", "True"]
        assert set(found.values()) == {"PermissionError"}
        assert run.state("look", "seen") == "x"
        run.create("forker")
        run.fill_with("in-forker", [b"x"])
        advice = "the setting functions_start_processes must allow it"
        wait_for(lambda: advice in json.dumps(run.status("forker")))


def test_an_operator_may_lift_the_confinement(tmp_path: Path, peer: int) -> None:
    key = tmp_path / "secret.key"
    key.write_text("shared")
    with running_functions(
        tmp_path, CODE, options=settings(tmp_path, "functions_unconfined = true\n")
    ) as run:
        assert looked(run, key, peer)["key"] == "shared"


@pytest.mark.skipif(landlock.abi() < 4, reason="Linux before 6.7 keeps no process to ports")
def test_an_operator_may_allow_processes_and_keep_code_to_ports(tmp_path: Path, peer: int) -> None:
    key = tmp_path / "secret.key"
    key.write_text("secret")
    options = settings(tmp_path, 'functions_start_processes = true\nfunctions_connect_ports = "1"\n')
    with running_functions(tmp_path, CODE, options=options) as run:
        found = looked(run, key, peer)
    assert found["child"] == "", "a program that it starts does not read the key either"
    assert found["peer"] == found["key"] == "PermissionError"


def test_limits_are_named_with_what_raises_them(tmp_path: Path) -> None:
    with running_functions(tmp_path, CODE) as run:
        run.create("hungry", resources={"ram": 256 << 20})
        run.create("opener")
        for name in ("hungry", "opener"):
            run.fill_with(f"in-{name}", [b"x"])
        limited = "may use 256 MiB: raise resources.ram"
        wait_for(lambda: limited in json.dumps(run.status("hungry")))
        wait_for(lambda: "may have 4096 files and connections open" in json.dumps(run.status("opener")))

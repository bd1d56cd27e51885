"""The code of functions is kept from the server's files and within its limits; a refusal says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.running_functions import running_functions, wait_for

pytestmark = [pytest.mark.process, pytest.mark.one_process("start")]

CODE = b'''
import os
import tempfile


def told(act):
    try:
        return str(act())
    except OSError as error:
        return type(error).__name__


def look(input: str, context):
    """Tries to reach what is not its own."""
    key, data = input.split()
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
    }


def hungry(input):
    return len(bytearray(1 << 30))


def opener(input):
    files = [open("/dev/null") for _ in range(5000)]
    return len(files)
'''


def test_code_does_not_reach_the_servers_files_and_processes(tmp_path: Path) -> None:
    key = tmp_path / "secret.key"
    key.write_text("secret")
    with running_functions(tmp_path, CODE) as run:
        run.create("look")
        run.fill_with("in-look", [f"{key} {run.process.data_dir}".encode()])
        found = json.loads(run.results("out-look", 1)[0].value)
        assert found.pop("mine") == "1"
        assert found.pop("child") == "", "nor does a program that it starts"
        assert set(found.values()) == {"PermissionError"}
        assert run.state("look", "seen") == "x"


def test_an_operator_may_lift_the_confinement(tmp_path: Path) -> None:
    key = tmp_path / "secret.key"
    key.write_text("shared")
    settings = tmp_path / "settings.toml"
    settings.write_text("functions_unconfined = true\n")
    with running_functions(tmp_path, CODE, options=("--config", str(settings))) as run:
        run.create("look")
        run.fill_with("in-look", [f"{key} {run.process.data_dir}".encode()])
        assert json.loads(run.results("out-look", 1)[0].value)["key"] == "shared"


def test_limits_are_named_with_what_raises_them(tmp_path: Path) -> None:
    with running_functions(tmp_path, CODE) as run:
        run.create("hungry", resources={"ram": 256 << 20})
        run.create("opener")
        for name in ("hungry", "opener"):
            run.fill_with(f"in-{name}", [b"x"])
        limited = "may use 256 MiB: raise resources.ram"
        wait_for(lambda: limited in json.dumps(run.status("hungry")))
        wait_for(lambda: "may have 4096 files and connections open" in json.dumps(run.status("opener")))

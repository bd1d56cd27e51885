"""Functions and packages survive the death of their standalone."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.adminclient import paths
from magnetar.adminclient.admin import Admin
from magnetar.adminclient.form import FormFile
from magnetar.adminclient.target import AdminTarget
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.one_process("folder")]

CODE = b"def process(input):\n    return input\n"
GIVEN = '{"className": "ex", "inputs": ["in"], "py": "ex.py"}'
NAMES = [f"f{number}" for number in range(5)]


def code_of(admin: Admin, name: str) -> bytes:
    return admin.answer(f"{paths.function(name)}/download").body


def test_what_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path / "data") as process:
        with Admin(AdminTarget(url=process.http_url)) as admin:
            for name in NAMES:
                file = FormFile("ex.py", CODE + name.encode())
                admin.send("POST", paths.function(name), {"functionConfig": GIVEN, "data": file})
            admin.send("POST", f"{paths.package('p')}/1", {"metadata": "{}", "file": FormFile("p.zip", CODE)})
            admin.call("DELETE", paths.function(NAMES[0]))
            admin.call("POST", f"{paths.function(NAMES[1])}/stop")
        process.kill()
        process.start()
        with Admin(AdminTarget(url=process.http_url)) as admin:
            assert admin.call("GET", paths.functions("public/default")) == NAMES[1:]
            assert [code_of(admin, name) for name in NAMES[1:]] == [
                CODE + name.encode() for name in NAMES[1:]
            ]
            assert admin.answer(f"{paths.package('p')}/1").body == CODE
            admin.call("POST", f"{paths.function(NAMES[1])}/start")
    kept = list(tmp_path.glob("**/functions/packages/*/*"))
    assert len(kept) == len(NAMES), "four functions and a package; the file of the deleted one is gone"

"""Users and passwords that an operator keeps by the command."""

from __future__ import annotations

import io
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from passlib.hash import bcrypt

from magnetar.auth.basic import BasicProvider
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import METHOD_BASIC, Credentials


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, magnetar: Callable[..., Any]) -> Callable[..., Any]:
    """Runs the command with a line of input."""

    def run(line: str, *arguments: str) -> Any:
        monkeypatch.setattr("sys.stdin", io.StringIO(line))
        return magnetar("users", *arguments)

    return run


def knows(file: Path, user: str, password: str) -> bool:
    shown = Credentials(METHOD_BASIC, f"{user}:{password}".encode())
    try:
        return BasicProvider(file.read_text()).identify(shown, 0).role == user
    except AuthenticationError:
        return False


def test_users_come_and_go(
    typed: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "users"
    ended = typed("sesame\n", "set", str(file), "ali")
    assert (ended.code, ended.out) == (0, "ali is added\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "sesame" not in file.read_text() + ended.out + ended.err
    assert file.read_text().startswith("ali:$2b$12$"), "bcrypt, of 4,096 rounds"
    # From here on it costs less: a hash of 4,096 rounds takes a quarter of a second.
    monkeypatch.setattr(bcrypt, "hash", bcrypt.using(rounds=4).hash)
    assert typed("sesame\n", "set", str(file), "ali").code == 0
    assert knows(file, "ali", "sesame")

    file.write_text(f"# who may\n{file.read_text()}")
    file.chmod(0o640)
    typed("tea\n", "set", str(file), "baba")
    assert typed("open", "set", str(file), "ali").out == "the password of ali is changed\n"
    assert [knows(file, *each) for each in (("ali", "sesame"), ("ali", "open"), ("baba", "tea"))] == [
        False,
        True,
        True,
    ]
    assert file.read_text().startswith("# who may\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640

    assert typed("", "remove", str(file), "ali").code == 0
    assert not knows(file, "ali", "open")
    assert knows(file, "baba", "tea")
    gone = typed("", "remove", str(file), "ali")
    assert gone.code == 1
    assert "has no user ali" in gone.err
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


@pytest.mark.parametrize("password", ["", "x" * 73, "a\0b", "ß" * 37])
def test_passwords_that_cannot_be_kept(typed: Callable[..., Any], tmp_path: Path, password: str) -> None:
    ended = typed(f"{password}\n", "set", str(tmp_path / "users"), "ali")
    assert ended.code == 1
    assert "1 to 72 bytes" in ended.err
    assert not (tmp_path / "users").exists()


@pytest.mark.parametrize("name", ["", "#a", "a b", "a:b", "x" * 101])
def test_names_that_a_file_cannot_hold(typed: Callable[..., Any], tmp_path: Path, name: str) -> None:
    assert typed("p\n", "set", str(tmp_path / "users"), name).code == 2

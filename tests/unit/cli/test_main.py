"""Exit codes and lines of the command."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import click
import pytest

from magnetar import __version__, twin
from magnetar.cli.main import magnetar, main
from magnetar.cli.table import COMMANDS
from magnetar.runtime.file_lock import FileLock
from magnetar.server.storage import storage_doctor


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, captured.out, captured.err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "--help")
    assert code == 0
    assert "standalone" in out
    code, out, _ = outcome(capsys, "--version")
    assert (code, out) == (0, f"magnetar, version {__version__} ({twin.description()})\n")
    code, out, _ = outcome(capsys, "standalone", "--help")
    assert code == 0
    assert "--ready-file" in out


def test_wrong_usage_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["nonsense"], ["standalone", "--port", "x"], ["standalone", "--nonsense"]):
        code, _, err = outcome(capsys, *arguments)
        assert code == 2
        assert "Usage" in err


def test_a_slip_is_told_the_nearest_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such command 'topcs'. Did you mean 'topics'?" in outcome(capsys, "topcs")[2]
    assert "Did you mean" not in outcome(capsys, "qqqq")[2]


def test_a_start_that_fails_is_one_line_and_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = outcome(capsys, "standalone", "--config", "/absent.toml")
    assert (code, out) == (1, "")
    assert err.startswith("magnetar: configuration /absent.toml cannot be read: ")
    assert err.count("\n") == 1


def test_a_file_that_cannot_be_used_is_one_line_and_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a read-only file system the commands about storage ended with a traceback."""
    (tmp_path / "bookie" / "segments").mkdir(parents=True)

    def refuse(path: Path, what: str) -> FileLock:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(storage_doctor, "FileLock", refuse)
    code, _, err = outcome(capsys, "doctor", "storage", "check", "--data", str(tmp_path))
    assert (code, err) == (1, f"magnetar: {tmp_path / 'LOCK'}: Read-only file system\n")


def test_help_imports_no_server() -> None:
    program = (
        "import sys, magnetar.cli.main as m\n"
        "heavy = {'asyncio', 'uvloop', 'google.protobuf', 'sqlite3', 'starlette', 'magnetar.broker',\n"
        "         'http.client', 'email', 'magnetar.adminclient', 'magnetar.client', 'difflib'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.stderr.strip() == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    command = magnetar.get_command(click.Context(magnetar), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(limit=1000).removesuffix(".") == COMMANDS[name].help.removesuffix(".")

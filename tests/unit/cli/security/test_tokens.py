"""Keys and tokens that an operator makes by the command."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import METHOD_TOKEN, Credentials
from magnetar.auth.token import TokenProvider, secret_key
from magnetar.cli.main import main

FAR_MS = 4_000_000_000_000
"""Later than any clock that runs these tests."""


def outcome(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["tokens", *map(str, arguments)])
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, captured.out, captured.err


def test_a_token_names_its_role(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    key = tmp_path / "a key"
    code, out, _ = outcome(capsys, "create-secret-key", key)
    assert (code, tomllib.loads(out)) == (0, {"token_secret_key": str(key)})
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    provider = TokenProvider(secret_key(key.read_bytes()))

    code, token, _ = outcome(capsys, "create", "--secret-key", key, "--subject", "orders")
    credentials = Credentials(METHOD_TOKEN, token.strip().encode())
    assert code == 0
    assert provider.identify(credentials, FAR_MS).role == "orders"

    _, token, _ = outcome(capsys, "create", "--secret-key", key, "--subject", "orders", "--expires", "30d")
    with pytest.raises(AuthenticationError, match="expired"):
        provider.identify(Credentials(METHOD_TOKEN, token.strip().encode()), FAR_MS)


def test_a_key_is_never_overwritten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k")
    code, _, err = outcome(capsys, "create-secret-key", key)
    assert (code, key.read_bytes()) == (1, b"k")
    assert "does not exist" in err


def test_what_cannot_be_done_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(b"short")
    assert "at least 32 bytes" in outcome(capsys, "create", "--secret-key", short, "--subject", "r")[2]
    absent = tmp_path / "absent"
    assert "cannot be read" in outcome(capsys, "create", "--secret-key", absent, "--subject", "r")[2]
    code, _, err = outcome(capsys, "create", "--secret-key", short, "--subject", "r", "--expires", "soon")
    assert (code, "not a duration" in err) == (2, True)

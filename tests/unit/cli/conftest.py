"""Running the command in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from magnetar.cli.main import main


class Ended(NamedTuple):
    """How a run ended."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def nobodys_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hides the contexts and environment variables of the machine from the commands."""
    monkeypatch.setenv("MAGNETAR_CONTEXTS", str(tmp_path / "contexts.json"))
    for name in ("URL", "ADMIN_URL", "TOKEN", "TOKEN_FILE", "TRUST_CERTS", "CONTEXT"):
        monkeypatch.delenv(f"MAGNETAR_{name}", raising=False)


@pytest.fixture
def magnetar(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs the command with these arguments."""

    def run(*arguments: object) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main([str(each) for each in arguments])
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, captured.out, captured.err)

    return run

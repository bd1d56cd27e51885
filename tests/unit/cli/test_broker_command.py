"""`magnetar broker`: what it hands to the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from magnetar.cli.main import magnetar
from magnetar.server import standalone
from magnetar.server.settings.config import StandaloneConfig

METADATA = ["broker", "--metadata", "zk://127.0.0.1:2181/ledgers"]


def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *options: str) -> tuple[StandaloneConfig, bool]:
    """The settings and the role that the process would have begun with."""
    seen: list[tuple[StandaloneConfig, bool]] = []

    def run(config: StandaloneConfig, *, shares: bool = False) -> int:
        seen.append((config, shares))
        return 0

    monkeypatch.setattr(standalone, "run", run)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    result = CliRunner().invoke(magnetar, [*METADATA, *options])
    assert result.exit_code == 0, result.output
    return seen[0]


def test_it_shares_a_cluster_and_takes_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The default folder is a standalone server's: the second broker of a machine found it in use."""
    config, shares = started(monkeypatch, tmp_path)
    assert shares
    assert config.data_dir is None


def test_a_folder_that_is_named_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config, _ = started(monkeypatch, tmp_path, "--data", str(tmp_path / "here"))
    assert config.data_dir == tmp_path / "here"

"""What a started process says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.banner import Endpoints, banner, remove_ready_file, write_ready_file

ENDPOINTS = Endpoints("pulsar://localhost:6650", "http://localhost:8080")


def test_the_banner_says_where_and_how() -> None:
    text = banner(ENDPOINTS, version="1.2.3", data_dir=Path("/data"), ready_ms=123.4)
    for part in ("1.2.3", "pulsar://localhost:6650", "http://localhost:8080", "/data", "fsync", "123 ms"):
        assert part in text
    assert "ephemeral" in banner(ENDPOINTS, version="1", data_dir=None)


def test_what_the_banner_tells_to_try_is_allowed() -> None:
    assert "curl http://localhost:8080/admin/v2" in banner(ENDPOINTS, version="1", data_dir=None)
    asked = banner(ENDPOINTS, version="1", data_dir=None, authentication="token,tls")
    assert "token,tls" in asked
    assert "curl http://localhost:8080/status.html" in asked


def test_the_ready_file_appears_whole(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    write_ready_file(file, ENDPOINTS, data_dir=Path("/data"))
    assert json.loads(file.read_text()) == {
        "pid": os.getpid(),
        "broker_url": "pulsar://localhost:6650",
        "http_url": "http://localhost:8080",
        "data_dir": "/data",
    }
    write_ready_file(file, ENDPOINTS, data_dir=None)
    assert json.loads(file.read_text())["data_dir"] is None
    assert list(tmp_path.iterdir()) == [file]
    remove_ready_file(file)
    remove_ready_file(file)
    with pytest.raises(StartupError, match="ready file"):
        write_ready_file(tmp_path / "absent" / "ready.json", ENDPOINTS, data_dir=None)

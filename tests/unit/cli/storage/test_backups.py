"""`magnetar backup` over a folder with backups of which one is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from magnetar.server.backup.manifest import Manifest
from magnetar.server.backup.repository import Repository


def test_a_damaged_backup_hides_no_other_one(tmp_path: Path, magnetar: Callable[..., Any]) -> None:
    repository = Repository.open(tmp_path / "backups", create=True)
    repository.keep(Manifest("20260101T000000Z", 0, "1", (), 0))
    repository.keep(Manifest("20260102T000000Z", 0, "1", (), 0))
    (tmp_path / "backups" / "backups" / "20260101T000000Z.json").write_text("{}")
    code, out, err = magnetar("backup", "list", repository.root, "-o", "json")
    assert [row["backup"] for row in json.loads(out)] == ["20260102T000000Z"]
    assert "20260101T000000Z.json fails its checksum" in err
    assert code == 7
    code, out, err = magnetar("backup", "verify", repository.root, "--all", "-o", "json")
    assert len(json.loads(out)["wrong"]) == 1
    assert code == 7

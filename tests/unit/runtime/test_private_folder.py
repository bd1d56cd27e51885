"""Whose rights are taken, and whose stay."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from magnetar.base.errors import StartupError
from magnetar.runtime.private_folder import keep_private


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (0o755, 0o700),
        (0o777, 0o700),
        (0o1777, 0o1700),
        (0o701, 0o700),
        (0o700, 0o700),
        (0o750, 0o750),
        (0o2770, 0o2770),
        (0o500, 0o500),
    ],
)
def test_others_are_kept_out_and_a_group_that_was_let_in_is_not(
    tmp_path: Path, before: int, after: int
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(before)
    assert keep_private(folder) is (before != after)
    assert stat.S_IMODE(folder.stat().st_mode) == after


@pytest.mark.parametrize(("rights", "refused"), [(0o777, True), (0o755, False), (0o1777, False)])
def test_another_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rights: int, refused: bool
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(rights)

    def denied(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", denied)
    if refused:
        with pytest.raises(StartupError, match="chmod o-w"):
            keep_private(folder)
    else:
        assert keep_private(folder) is False

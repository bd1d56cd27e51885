"""Folders that only their owner may enter."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

from magnetar.base.errors import StartupError


def keep_private(folder: Path) -> bool:
    """Removes the access of group and others from a folder that others may enter; returns whether it did.

    A folder that the group may enter and others may not counts as deliberate and is left. So is a folder of
    another user, unless others may create files in it: that raises StartupError. Raises OSError.
    """
    before = folder.stat().st_mode
    if not before & stat.S_IRWXO:
        return False
    with contextlib.suppress(PermissionError):  # The folder belongs to another user: checked below.
        folder.chmod(before & ~(stat.S_IRWXG | stat.S_IRWXO) & 0o7777)
        return True
    if before & stat.S_IWOTH and not before & stat.S_ISVTX:
        raise StartupError(
            f"all users may write to the folder {folder}, which belongs to another user: let its owner run "
            f"chmod o-w {folder}, or choose another folder"
        )
    return False

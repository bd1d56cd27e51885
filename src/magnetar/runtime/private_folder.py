"""Folders whose content is nobody else's business."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

from magnetar.base.errors import StartupError


def keep_private(folder: Path) -> bool:
    """Takes the rights of group and others from a folder that others may enter; whether it did.

    A folder that the group may enter and others may not was made so on purpose and stays. One that cannot be
    changed, as it is somebody else's, stays too, unless others may put files into it. Raises StartupError
    then; OSError.
    """
    before = folder.stat().st_mode
    if not before & stat.S_IRWXO:
        return False
    with contextlib.suppress(PermissionError):  # somebody else's folder: looked at below
        folder.chmod(before & ~(stat.S_IRWXG | stat.S_IRWXO) & 0o7777)
        return True
    if before & stat.S_IWOTH and not before & stat.S_ISVTX:
        raise StartupError(
            f"all users may write to the folder {folder}, which belongs to another user: let its owner run "
            f"chmod o-w {folder}, or choose another folder"
        )
    return False

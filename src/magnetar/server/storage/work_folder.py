"""The folder of files that are not uploaded yet."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.runtime.locked_folder import LockedFolder

_PREFIX: Final = "magnetar-offload-"


class WorkFolder:
    """A folder for temporary files, empty at the start: what an earlier process left belongs to no
    attempt."""

    def __init__(self, path: Path, own: LockedFolder | None = None) -> None:
        """`own`: the folder, which is deleted at the end; None: it stays."""
        self.path = path
        self._own = own

    @classmethod
    def emptied(cls, path: Path) -> WorkFolder:
        """The folder `path` of a data folder, which no other process uses. Raises StartupError."""
        try:
            path.mkdir(exist_ok=True)
            # The folder itself stays: on a full disk a new one may not fit.
            for left in path.iterdir():
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink()
        except OSError as error:
            raise StartupError(
                f"the folder {path} cannot be used: {error.strerror}; make room for it"
            ) from error
        return cls(path)

    @classmethod
    def own(cls) -> WorkFolder:
        """A new folder among the system's temporary ones, locked as long as this process lives. Deletes those
        of processes that were killed: each may have a file of hundreds of MiB. Raises StartupError."""
        try:
            folder = LockedFolder.make(_PREFIX)
        except OSError as error:
            raise StartupError(
                f"no temporary folder for history: {error.strerror}; make room in {tempfile.gettempdir()}"
            ) from error
        return cls(folder.path, folder)

    def close(self) -> None:
        """Deletes the folder if it goes with the process."""
        if self._own is not None:
            self._own.close()

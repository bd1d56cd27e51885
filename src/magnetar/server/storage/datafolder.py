"""The folder that holds everything durable of a process.

DATA/LOCK                   held by the process that uses the folder
DATA/FORMAT                 version of this layout: decimal, LF
DATA/GIVEN-UP.json          entries on bookies that were given up (bookie/given_up.py); usually absent
DATA/metadata/metadata.db   the metadata store; beside it space for a full disk (.reserve)
DATA/bookie/                the message store, with its own format
DATA/bookies/               in place of it: common folder of bookies beside the broker, with a folder for each
DATA/offload/               files that are not in the object store yet; emptied at each start
DATA/offloaded/             the object store, if the settings name no other
DATA/staged/                points in time that are being backed up: links; emptied at each start
DATA/functions/packages/     files of functions and packages, as they were uploaded
DATA/lake/catalog.db        the catalog of Iceberg tables, if the settings name no other; can be made again
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.runtime.durable_file import settle_folder, write_durably
from magnetar.runtime.file_lock import FileLock
from magnetar.runtime.private_folder import keep_private

_log = logging.getLogger("magnetar.server")

FORMAT_VERSION: Final = 1
"""Version of the layout. A release reads every version up to its own, and refuses newer ones before any
change."""

ROOM_BYTES_MIN: Final = 64 << 20
"""Bytes of free space that a new folder needs, for the first segment and some writes of metadata. An existing
folder is opened on a full disk too: recovery frees space, and deleting needs a broker."""

METADATA_RESERVE_BYTES: Final = 8 << 20
"""Bytes that are reserved for writes of metadata that free space on a full disk."""


def used_percent(folder: Path) -> float:
    """Used share of a folder's disk in percent, as `df` counts it, without the blocks reserved for root."""
    found = os.statvfs(folder)
    used = found.f_blocks - found.f_bfree
    return 100 * used / max(1, used + found.f_bavail)


class FolderPaths:
    """Where the parts of a data folder are, for a process that holds it, and for others of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def metadata_file(self) -> Path:
        """File of the embedded metadata store."""
        return self.root / "metadata" / "metadata.db"

    @property
    def bookie_dir(self) -> Path:
        """Folder of the message store."""
        return self.root / "bookie"

    @property
    def bookies_dir(self) -> Path:
        """Folder of the bookies beside the broker; missing when there are none."""
        return self.root / "bookies"

    @property
    def offload_dir(self) -> Path:
        """Folder of files that are not in the object store yet."""
        return self.root / "offload"

    @property
    def offloaded_dir(self) -> Path:
        """Folder of the object store, if the settings name no other."""
        return self.root / "offloaded"

    @property
    def staged_dir(self) -> Path:
        """Folder of points in time that are being backed up."""
        return self.root / "staged"

    @property
    def lake_catalog_file(self) -> Path:
        """File of the catalog of tables."""
        return self.root / "lake" / "catalog.db"


class DataFolder(FolderPaths):
    """A data folder that this process holds from `__init__` until `release`."""

    def __init__(self, root: Path) -> None:
        """Creates the folder if necessary, takes its lock, checks its format.

        Only its owner may enter the folder. Raises StartupError when it is in use, of a newer format, not
        writable, or the disk is full.
        """
        super().__init__(root)
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            if keep_private(root):
                _log.warning("other users could enter the data folder %s; now only its owner can", root)
            self._lock = FileLock(root / "LOCK", f"the data folder {root}")
        except OSError as error:
            raise _unusable(root, error) from error
        try:
            self._check()
        except BaseException:
            self._lock.release()
            raise

    def release(self) -> None:
        """Releases the lock; may be called twice."""
        self._lock.release()

    def _check(self) -> None:
        file = self.root / "FORMAT"
        try:
            found = file.read_text("ascii", "replace").strip() if file.exists() else ""
            free = os.statvfs(self.root)
            if not found and free.f_bavail * free.f_frsize < ROOM_BYTES_MIN:
                raise OSError(errno.ENOSPC, "less than 64 MiB free")
            for place in (self.metadata_file.parent, self.bookie_dir):
                place.mkdir(exist_ok=True, mode=0o700)
                keep_private(place)
            if not found:
                # Syncs this folder, and with it the names of the two above.
                write_durably(file, f"{FORMAT_VERSION}\n".encode())
                settle_folder(self.root)
                return
        except OSError as error:
            raise _unusable(self.root, error) from error
        if not found.isdigit():
            raise StartupError(f"{file} is damaged; restore it, or choose another data folder with --data")
        if int(found) > FORMAT_VERSION:
            raise StartupError(
                f"the data folder {self.root} has format {found}, this release knows up to {FORMAT_VERSION}; "
                "use the newer release, or another folder with --data"
            )


PACKAGES: Final = "packages"
"""Name of the folder of files below that of functions."""


def functions_dir(root: Path) -> Path:
    """Folder of everything about functions; missing until there are any."""
    return root / "functions"


def packages_dir(root: Path) -> Path:
    """Folder of the files of functions and packages; missing until there are any."""
    return functions_dir(root) / PACKAGES


def losses_dir(root: Path) -> Path:
    """Folder with the record of entries that were given up: beside the messages, if `root` has any itself."""
    return root / "bookie" if (root / "bookie" / "FORMAT").exists() else root


def _unusable(root: Path, error: OSError) -> StartupError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StartupError(
            f"no space left for the data folder {root}; free some, or choose another disk with --data"
        )
    return StartupError(
        f"the data folder {root} cannot be used: {error.strerror}; choose another one with --data"
    )

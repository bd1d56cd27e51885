"""File systems in a file, to fill them up and to cut their power."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _run(*command: str | Path) -> None:
    subprocess.run(list(map(str, command)), check=True, capture_output=True)


def make_image(image: Path, size_bytes: int) -> None:
    """An empty ext4 file system in a sparse file."""
    with image.open("wb") as file:
        file.truncate(size_bytes)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", image)


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    """The file system at `folder`. It commits by itself only after minutes, so that only syncs count."""
    folder.mkdir(exist_ok=True)
    _run("mount", "-o", "loop,commit=300", image, folder)
    try:
        yield folder
    finally:
        _run("umount", folder)


def copy_image(image: Path, copy: Path) -> None:
    """What the device holds at this moment, without what is only in the page cache of its file system."""
    _run("cp", "--sparse=always", image, copy)


def why_impossible(folder: Path) -> str | None:
    """Why file systems cannot be mounted here; None when they can."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    for program in ("mkfs.ext4", "mount", "umount", "cp"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    image = folder / "probe.img"
    try:
        make_image(image, 4 << 20)
        with mounted(image, folder / "probe"):
            pass
    except subprocess.CalledProcessError as error:
        return f"cannot mount a loop device: {error.stderr.decode(errors='replace').strip()}"
    finally:
        image.unlink(missing_ok=True)
    return None

"""Packages of user's code to places from which Python imports. Driver.

| Package | What is imported |
|---|---|
| a `.py` file | the file |
| a `.whl` | what it holds, unpacked |
| a `.zip` of the folder `NAME` | `NAME/src`, and each wheel in `NAME/deps`, unpacked |
| a folder | what it holds, and its `src` |

Archives are not trusted: names that leave the folder, links, and more than the bounds are refused.
"""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path, PurePosixPath
from typing import Final

from magnetar.functions.errors import CodeError

FILES_MAX: Final = 20_000
BYTES_MAX: Final = 2 << 30
"""Most bytes of all files of a package when they are unpacked."""
_COPY_BYTES: Final = 1 << 20


def import_paths(package: Path, folder: Path) -> list[str]:
    """Folders to put before `sys.path`; archives are unpacked into `folder`. Raises CodeError."""
    if package.is_dir():
        return [str(package / "src"), str(package)] if (package / "src").is_dir() else [str(package)]
    if not package.is_file():
        raise CodeError(f"there is no file {package.name} of the function's code")
    kind = package.suffix.lower()
    if kind == ".py":
        return [str(package.parent)]
    if kind not in (".whl", ".zip") and not zipfile.is_zipfile(package):
        raise CodeError(f"{package.name} is none of .py, .whl and .zip: a function's code is one of these")
    unpacked(package, folder)
    if kind == ".whl":
        return [str(folder)]
    roots = sorted(path for path in folder.iterdir() if path.is_dir() and (path / "src").is_dir())
    root = roots[0] if roots else folder
    places = [str(root / "src")] if (root / "src").is_dir() else [str(root)]
    for wheel in sorted((root / "deps").glob("*.whl")):
        place = folder / ".deps" / wheel.stem
        unpacked(wheel, place)
        places.append(str(place))
    return places


def unpacked(archive: Path, folder: Path) -> None:
    """Unpacks a zip archive into `folder`. Raises CodeError."""
    try:
        with zipfile.ZipFile(archive) as opened:
            infos = opened.infolist()
            if len(infos) > FILES_MAX or sum(info.file_size for info in infos) > BYTES_MAX:
                raise CodeError(
                    f"{archive.name} holds {len(infos)} files; at most {FILES_MAX} with {BYTES_MAX >> 20} MiB"
                    " are unpacked"
                )
            left = BYTES_MAX
            for info in infos:
                target = _target(folder, info, archive.name)
                if target is not None:
                    left = _copied(opened, info, target, left)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise CodeError(f"{archive.name} cannot be unpacked: {error}") from error


def _target(folder: Path, info: zipfile.ZipInfo, archive: str) -> Path | None:
    """Where a file goes; None for a folder."""
    name = PurePosixPath(info.filename.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or ":" in info.filename:
        raise CodeError(f"{archive} holds {info.filename!r}, which leads out of its folder")
    if stat.S_ISLNK(info.external_attr >> 16):
        raise CodeError(f"{archive} holds the link {info.filename!r}; links are not unpacked")
    if info.is_dir() or not name.parts:
        return None
    return folder.joinpath(*name.parts)


def _copied(opened: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Unpacks one file; returns how many bytes are still allowed, whatever the archive claims."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with opened.open(info) as source, target.open("wb") as file:
        while block := source.read(_COPY_BYTES):
            left -= len(block)
            if left < 0:
                raise CodeError(f"{opened.filename} holds more than it says")
            file.write(block)
    return left

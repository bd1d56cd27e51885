"""Wheel and source archive of a commit, equal bytes wherever and whenever they are built.

The wheel is the pure one: a compiler's work depends on the compiler.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

BUILD_S = 600
_CALL = """
import os, sys
sys.path.insert(0, "tools")
out = sys.argv[1]
os.umask(int(sys.argv[2]))
import twin_build
twin_build.build_sdist(out)
twin_build.build_wheel(out)
"""


class BuildError(Exception):
    """Nothing was built, or two builds differ."""


def git(*arguments: str) -> bytes:
    """What it prints, in the project's root. Raises BuildError."""
    done = subprocess.run(["git", *arguments], capture_output=True, check=False, timeout=BUILD_S)
    if done.returncode:
        raise BuildError(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def unpack(archive: bytes, folder: Path) -> None:
    """The sources of a commit, with the same rights everywhere."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as sources:
        sources.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if runs else 0o644)


def build(archive: bytes, folder: Path, *, epoch_s: int, umask: int, zone: str) -> list[Path]:
    """The two files, of sources that are unpacked in `folder`. `umask` and `zone` must make no difference.

    Raises BuildError.
    """
    sources, out = folder / "sources", folder / "out"
    sources.mkdir(parents=True)
    out.mkdir()
    unpack(archive, sources)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s), "MAGNETAR_PURE": "1", "TZ": zone}
    environment["PYTHONHASHSEED"] = str(umask)
    done = subprocess.run(
        [sys.executable, "-c", _CALL, str(out), str(umask)],
        cwd=sources,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_S,
    )
    if done.returncode:
        raise BuildError(f"building failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = sorted(out.iterdir())
    if [each.name.endswith((".tar.gz", ".whl")) for each in found] != [True, True]:
        raise BuildError(
            f"a wheel and a source archive were to be built, not {[each.name for each in found]}"
        )
    for file in found:
        settle = settled if file.name.endswith(".tar.gz") else settled_wheel
        file.write_bytes(settle(file.read_bytes(), epoch_s))
    return found


def settled(archive: bytes, epoch_s: int) -> bytes:
    """A .tar.gz with the same files, whose owners, rights, times and order do not depend on the builder."""
    plain = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            content = old.extractfile(member) if member.isfile() else None
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch_s, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, content)
    return gzip.compress(plain.getvalue(), mtime=epoch_s)


def settled_wheel(wheel: bytes, epoch_s: int) -> bytes:
    """The same of a wheel. Its own list of hashes is of contents only, and stays true."""
    result = io.BytesIO()
    moment = time.gmtime(epoch_s)[:6]
    with zipfile.ZipFile(io.BytesIO(wheel)) as old, zipfile.ZipFile(result, "w") as new:
        # The .dist-info is last, so that readers find it fast. Source: the format's own advice.
        for name in sorted(old.namelist(), key=lambda each: (".dist-info/" in each, each)):
            member = zipfile.ZipInfo(name, moment)
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            member.create_system = 3  # Unix, whose rights these are
            member.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(member, old.read(name))
    return result.getvalue()


def twice(archive: bytes, folder: Path, *, epoch_s: int) -> list[Path]:
    """The files of the first of two builds, which are equal. Raises BuildError."""
    first = build(archive, folder / "first", epoch_s=epoch_s, umask=0o022, zone="UTC")
    second = build(archive, folder / "another" / "place", epoch_s=epoch_s, umask=0o077, zone="Asia/Tokyo")
    if [each.name for each in first] != [each.name for each in second]:
        raise BuildError("two builds give files of different names")
    for one, other in zip(first, second, strict=True):
        if one.read_bytes() != other.read_bytes():
            raise BuildError(f"two builds of {one.name} differ: {one} and {other}")
    return first

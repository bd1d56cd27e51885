"""The two twins of the hot modules: compiled by mypyc, and the same files in pure Python.

The extension modules lie beside their sources, where the interpreter prefers them. The sources run when

- there are no extension modules for this interpreter,
- `MAGNETAR_PURE` is set to anything but nothing or 0, or
- they were built in a work tree (`./dev build`) and a source was changed since.

All modules are compiled together and refer to each other, so it is all of them or none.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Final

MODULES: Final = (
    "magnetar.wire.checksum",
    "magnetar.wire.frames",
    "magnetar.wire.shapes",
    "magnetar.wire.events",
    "magnetar.wire.sends",
    "magnetar.wire.acks",
    "magnetar.wire.receipts",
    "magnetar.wire.messages",
    "magnetar.wire.server",
)
"""What is compiled. Which modules, and why these: docs/decisions, the compiled twin."""

STAMP: Final = ".built"
"""In the package's folder after a build in a work tree: what `fingerprint` gave then."""

_PACKAGE: Final = Path(__file__).parent


class _SourceFinder:
    """Finds the sources of MODULES; asked before the finder that prefers extension modules."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder.find_spec`."""
        return spec_from_file_location(name, source_of(_PACKAGE, name)) if name in MODULES else None


def choose() -> None:
    """Decides which twin this process imports; to be called before the first of MODULES is imported."""
    wanted_pure = os.environ.get("MAGNETAR_PURE", "") not in ("", "0")
    if (wanted_pure or _is_stale()) and _SourceFinder not in sys.meta_path:
        sys.meta_path.insert(0, _SourceFinder)


def description() -> str:
    """Which twin runs, for people: "compiled" or "pure Python", with the reason when it is not obvious."""
    if _SourceFinder in sys.meta_path:
        return "pure Python: sources changed since ./dev build" if _is_stale() else "pure Python"
    stem = source_of(_PACKAGE, MODULES[-1])[: -len(".py")]
    compiled = any(os.path.exists(stem + suffix) for suffix in EXTENSION_SUFFIXES)
    return "compiled" if compiled else "pure Python"


def source_of(package: Path, name: str) -> str:
    """The source of one of MODULES below the package's folder."""
    return os.path.join(package, *name.split(".")[1:]) + ".py"


def fingerprint(package: Path) -> str:
    """What changes with every edit of a source: sizes and times, a line for each module. Raises OSError."""
    lines = []
    for name in MODULES:
        status = os.stat(source_of(package, name))
        lines.append(f"{name} {status.st_size} {status.st_mtime_ns}\n")
    return "".join(lines)


def _is_stale() -> bool:
    """Whether a build in this work tree is older than its sources. An installed wheel has no stamp."""
    try:
        stamp = (_PACKAGE / STAMP).read_text()
    except OSError:
        return False
    return stamp != fingerprint(_PACKAGE)

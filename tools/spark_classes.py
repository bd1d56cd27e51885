"""The classes of Spark, parsed and verified once for all JVMs of a test run.

    python tools/spark_classes.py      makes the archive where it is missing or of another Java or Spark

A Spark session loads 15,000 classes, which is half of what a small one costs. Java's class-data sharing maps
them from a file: a session of three small queries took 7 s of CPU in place of 13 (24 November 2026, Java 17).
`./dev test` makes the file before the stages with Spark, beside the packages of its environment;
`tests/conftest.py` hands it to the JVMs. A JVM that the file does not fit ignores it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from magnetar.spark.errors import SparkSourceError
from magnetar.spark.java import find_java_home


def folder_of(environment: Path) -> Path:
    """Where the archive of an environment is: beside its packages. Spark divides the options of Java at
    spaces; an environment whose path has some has its archive under $XDG_CACHE_HOME, or ~/.cache."""
    beside = environment / "spark-classes"
    if not _has_spaces(beside):
        return beside
    home = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(home) if home.startswith("/") else Path.home() / ".cache"
    name = hashlib.sha256(os.fsencode(environment)).hexdigest()[:16]
    return cache / "magnetar" / f"spark-classes-{name}"


def _has_spaces(path: Path) -> bool:
    return any(character.isspace() for character in str(path))


FOLDER: Final = folder_of(Path(sys.prefix))
LIGHT: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs of tests: they end before the second compiler has paid for itself (a session and a query take 8 s
of CPU in place of 14), and threads that collect garbage have no core of their own."""
QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""A JVM with another class path would warn that it cannot use the archive."""
SUBMIT: Final = Path(sysconfig.get_path("purelib")) / "pyspark" / "bin" / "spark-submit"
TRAINING: Final = Path(__file__).parent.parent / "tests" / "support" / "spark_training.py"
DEADLINE_S: Final = 900.0

SPARK: Final = "spark.jsa"
NOTE: Final = "made-of"


def options(folder: Path = FOLDER) -> str:
    """Options of Java for a JVM of Spark in tests, with the archive when there is one."""
    if not (folder / SPARK).exists() or _has_spaces(folder):
        return LIGHT
    return f"{LIGHT} -XX:SharedArchiveFile={folder / SPARK} {QUIET}"


def make(folder: Path = FOLDER) -> bool:
    """Makes the archive unless there is one of this Java and this Spark; whether there is one now.

    Takes about 45 s of CPU. Tests run without it, too, so nothing here fails.
    """
    if _has_spaces(folder):
        return False
    try:
        home = find_java_home(os.environ)
        about = _describe(home)
    except (SparkSourceError, PackageNotFoundError, OSError, subprocess.SubprocessError) as error:
        print(f"no archive of Spark's classes: {error}", flush=True)
        return False
    note = folder / NOTE
    # A note without an archive: it could not be made.
    if not note.exists() or note.read_text(encoding="utf-8") != about:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place, so that a JVM of another run sees a whole archive.
        made = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
        try:
            _make(home / "bin" / "java", made)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"no archive of Spark's classes: {error}", flush=True)
            (made / SPARK).unlink(missing_ok=True)
        (made / NOTE).write_text(about, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return (folder / SPARK).exists()


def _describe(home: Path) -> str:
    """What an archive fits."""
    command = [str(home / "bin" / "java"), "-version"]
    java = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    here = hashlib.sha256(Path(__file__).read_bytes() + TRAINING.read_bytes()).hexdigest()
    return f"{home}\n{java.stderr}{java.stdout}pyspark {version('pyspark')}\n{here}\n"


def _make(java: Path, folder: Path) -> None:
    """Raises OSError and SubprocessError."""
    # The packaged Java brings no archive of its own classes, on which this one would build.
    _run([str(java), "-Xshare:on", "-version"], os.environ)
    print("making an archive of Spark's classes, once for this Java and this Spark", flush=True)
    training = {"SPARK_SUBMIT_OPTS": f"{LIGHT} {QUIET} -XX:ArchiveClassesAtExit={folder / SPARK}"}
    _run([sys.executable, str(TRAINING)], {**os.environ, **training})
    # Some Javas compare class paths in a way that Spark's never fits: with this option they end.
    Path(folder / SPARK).stat()
    check = {"SPARK_SUBMIT_OPTS": f"{options(folder)} -Xshare:on", "JAVA_HOME": str(java.parent.parent)}
    _run([str(SUBMIT), "--version"], {**os.environ, **check})


def _run(command: list[str], environment_of_it: Mapping[str, str]) -> None:
    """Raises SubprocessError with the last line that it said."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        env=environment_of_it,
        check=False,
    )
    if done.returncode != 0:
        raise subprocess.SubprocessError(done.stdout.strip().rpartition("\n")[2])


if __name__ == "__main__":
    raise SystemExit(int(not make()))

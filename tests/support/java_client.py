"""The official Java client: its jars, fetched by Maven on first use, checked against jars.sha256 and kept,
and the driver of ours that runs scenarios with it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from support.drivers import NotHereError, outcomes_of

HERE = Path(__file__).parents[1] / "compat" / "java"
VERSION_MIN = 17
FETCH_DEADLINE_S = 240
RUN_DEADLINE_S = 330


def cache_home() -> Path:
    """Where tests keep what takes long to get: under $XDG_CACHE_HOME, or ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "magnetar"


def cache_folder(home: Path = HERE) -> Path:
    """Where the jars of the pinned list in `home` are kept."""
    pinned = hashlib.sha256((home / "jars.sha256").read_bytes()).hexdigest()[:12]
    return cache_home() / f"java-client-{pinned}"


def class_path(home: Path = HERE) -> str:
    """Java's class path of what `pom.xml` and `jars.sha256` in `home` pin. Raises NotHereError."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise NotHereError(f"{tool} is not installed")
    version = subprocess.run(["javac", "-version"], capture_output=True, text=True).stdout
    found = re.search(r"\d+", version)
    if found is None or int(found[0]) < VERSION_MIN:
        raise NotHereError(f"Java {VERSION_MIN} is needed, and here is {version.strip() or 'another one'}")
    folder = cache_folder(home)
    if not folder.exists():
        _fetch(home, folder)
    _check(home, folder)
    return str(folder / "*")


def _fetch(home: Path, folder: Path) -> None:
    # Into a folder of its own first: another run may be doing the same.
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    command = ["mvn", "-q", "-B", "-f", str(home / "pom.xml"), "dependency:copy-dependencies"]
    try:
        subprocess.run(
            [*command, "-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"],
            check=True,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=FETCH_DEADLINE_S,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        lines = str(error.stdout or error).strip().splitlines()
        raise NotHereError(f"Maven cannot fetch the client: {lines[0] if lines else error}") from error
    if folder.exists():
        shutil.rmtree(unfinished)
    else:
        unfinished.rename(folder)


def _check(home: Path, folder: Path) -> None:
    """Raises AssertionError when the jars are not the pinned ones, so that unreviewed code never runs."""
    expected = dict(reversed(line.split()) for line in (home / "jars.sha256").read_text().splitlines())
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    assert found == expected, f"the jars in {folder} are not those of {home / 'jars.sha256'}"


def run_driver(classes: Path, main: str, *arguments: str) -> dict[str, str]:
    """Compiles the driver into `classes` and runs it: each scenario with the reason of its failure, "" when
    it passed. Raises NotHereError."""
    path = class_path()
    sources = [str(source) for source in sorted((HERE / "driver").glob("*.java"))]
    subprocess.run(["javac", "-proc:none", "-nowarn", "-cp", path, "-d", str(classes), *sources], check=True)
    ran = subprocess.run(
        ["java", "-cp", f"{classes}{os.pathsep}{path}", main, *arguments],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=RUN_DEADLINE_S,
    )
    return outcomes_of(ran.stdout, ran.stderr)


def scenarios_of(*sources: str) -> list[str]:
    """Names of the scenarios in these files of the driver."""
    texts = [(HERE / "driver" / source).read_text(encoding="utf-8") for source in sources]
    return [name for text in texts for name in re.findall(r'scenarios\.put\("([^"]+)"', text)]

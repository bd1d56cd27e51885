"""The official clients as load programs: fetched from registries, checked against pinned hashes, built.

Go's modules are pinned by `go/go.sum`, the Java client's jars by the list of the compatibility tests, the
Python client by the lock of this environment.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bench.broker import BrokerFailedError
from bench.peers.servers import fetch_jars, run_tool

HERE: Final = Path(__file__).parent
JARS: Final = HERE.parents[1] / "tests" / "compat" / "java" / "jars.sha256"
JAVA_CLIENT: Final = [
    ("org.apache.pulsar", "pulsar-client", "4.2.4"),
    ("com.google.protobuf", "protobuf-java", "4.31.1"),
]


def go(programs: Path) -> list[str]:
    """Builds the Go program once for each state of its sources. Raises BrokerFailedError."""
    state = hashlib.sha256()
    for source in sorted((HERE / "go").iterdir()):
        state.update(source.read_bytes())
    built = programs / f"go-load-{state.hexdigest()[:12]}"
    if not built.exists():
        programs.mkdir(parents=True, exist_ok=True)
        flags = "-mod=readonly -buildvcs=false"
        run_tool(["go", "build", "-o", str(built), "."], HERE / "go", GOTOOLCHAIN="local", GOFLAGS=flags)
    # Pinned to one core Go would run one goroutine at a time, also while that one sleeps in the kernel.
    return ["env", "GOMAXPROCS=4", str(built)]


def java(programs: Path, program: str = "Load") -> list[str]:
    """Fetches the client's jars and compiles a Java program. Raises BrokerFailedError."""
    folder = programs / "java-load"
    fetch_jars(folder, None, JAVA_CLIENT)
    pinned = {name: digest for digest, name in map(str.split, JARS.read_text().splitlines())}
    for jar in (folder / "lib").glob("*.jar"):
        if hashlib.sha256(jar.read_bytes()).hexdigest() != pinned.get(jar.name):
            raise BrokerFailedError(f"{jar} is not the jar that {JARS} pins; look at both")
    path = f"{folder}/lib/*"
    run_tool(["javac", "-cp", path, "-d", str(folder), str(HERE / "java" / f"{program}.java")], folder)
    return ["java", "-Xmx512m", "-cp", f"{folder}:{path}", program]


def python(_: Path) -> list[str]:
    """The Python client of this environment."""
    return [sys.executable, "-m", "bench.clients.python_load"]


CLIENTS: Final[Mapping[str, Callable[[Path], list[str]]]] = {"go": go, "java": java, "python": python}
"""By name what makes a program's command; it takes the folder that keeps what was fetched and built."""


def without_bytecode_switch() -> dict[str, str]:
    """The environment of a program under measurement."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

"""The real Prometheus, of Debian's package, without installing it."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.java_client import cache_home
from support.object_stores import free_port
from support.standalone import wait_until

PACKAGE = "prometheus"
_DOWNLOAD_S = 120.0
START_S = 60.0


def programs() -> Path:
    """The folder of `prometheus` and `promtool`: installed, or unpacked from the package, fetched once.

    Skips the test where neither can be had, and says why.
    """
    if found := shutil.which("promtool"):
        return Path(found).parent
    folder = cache_home() / "prometheus"
    programs = folder / "usr" / "bin"
    if not (programs / "promtool").exists():
        _unpack(folder)
    return programs


def _unpack(folder: Path) -> None:
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            pytest.skip(f"promtool is not installed, and without {tool} Debian's package cannot be had")
    work = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    fetched = _run("apt-get", "download", PACKAGE, folder=work)
    if fetched.returncode:
        # A new machine has no lists of packages yet.
        _run("apt-get", "update", folder=work)
        fetched = _run("apt-get", "download", PACKAGE, folder=work)
    packages = list(work.glob("*.deb"))
    if fetched.returncode or not packages:
        pytest.skip(f"promtool is not installed, and apt-get download says: {fetched.stderr.strip()[-200:]}")
    subprocess.run(["dpkg", "-x", str(packages[0]), str(work)], check=True, capture_output=True)
    packages[0].unlink()
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)


def _run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False
    )


def promtool(*arguments: str | Path, stdin: str | None = None) -> str:
    """What it says; it must succeed."""
    command = [str(programs() / "promtool"), *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """A server that runs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def api(self, path: str, **query: str) -> Any:
        """The data of an answer of its HTTP API. Raises urllib.error.HTTPError for a query that is none."""
        words = f"?{urllib.parse.urlencode(query)}" if query else ""
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}{words}", timeout=30) as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        result: list[dict[str, Any]] = self.api("query", query=expression)["result"]
        return result


@contextmanager
def running(folder: Path, target: str, rules: Path) -> Iterator[Prometheus]:
    """One that asks `target` (host:port) every second and evaluates these rules."""
    port = free_port()
    program = programs() / "prometheus"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{json.dumps(str(rules))}]\n"
        "scrape_configs:\n  - job_name: magnetar\n"
        f"    static_configs: [{{targets: [{json.dumps(target)}]}}]\n"
    )
    command = [str(program), f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    server = Prometheus(f"http://127.0.0.1:{port}")
    try:

        def ready() -> bool:
            assert process.poll() is None, (folder / "prometheus.log").read_text(errors="replace")
            try:
                return bool(server.query("up"))
            except OSError:
                return False

        wait_until(ready, START_S, "Prometheus has asked once")
        yield server
    finally:
        process.kill()
        process.wait()

"""The servers of a cluster: metadata service, bookies and brokers, each on a network of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import HTTPRedirectHandler, Request, build_opener

from chaos.network import Network
from chaos.schedule import Shape

_TESTS: Final = str(Path(__file__).parents[1] / "tests")
if _TESTS not in sys.path:
    sys.path.append(_TESTS)
from support import (  # type: ignore[import-not-found]  # noqa: E402  # needs the path above
    clock_steps,
    java_client,
    metadata_servers,
)
from support.drivers import (  # type: ignore[import-not-found]  # noqa: E402  # as above
    NotHereError as NotHereError,
)

START_S: Final = 120.0
SESSION_S: Final = 6
"""Seconds until the metadata service takes a silent server for gone."""
CALL_S: Final = 20.0
_CLIENT_PORT: Final = 2379
_PEER_PORT: Final = 2380
_BROKER_PORT: Final = 6650
_HTTP_PORT: Final = 8080
_BOOKIE_PORT: Final = 3181
DISK_BYTES: Final = 1 << 30
"""Size of a bookie's disk, which is memory as far as it is used."""


class Server:
    """A process of the cluster that keeps its address, folder and disk over its lives."""

    def __init__(self, name: str, folder: Path, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self.folder = folder
        self._command = command
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self.lives = 0
        """How often it was started."""

    @property
    def log_path(self) -> Path:
        """What all its lives printed."""
        return self.folder / f"{self.name}.log"

    def start(self) -> None:
        """Starts the process and does not wait; does nothing when it runs."""
        if self.is_running:
            return
        (self.folder / f"{self.name}.json").unlink(missing_ok=True)
        self.lives += 1
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
                cwd=self.folder,
            )

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id; None when it does not run."""
        return self._process.pid if self._process is not None and self.is_running else None

    def send(self, number: signal.Signals) -> None:
        """Sends a signal; does nothing when the process does not run."""
        if self._process is not None and self.is_running:
            self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, deadline_s: float) -> None:
        """SIGTERM, and SIGKILL after the deadline."""
        self.send(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def ready(self) -> dict[str, str] | None:
        """What the process wrote when it was ready; None before. Of brokers and bookies alone."""
        with contextlib.suppress(OSError, ValueError):  # it is not there yet, or half of it is
            found: dict[str, str] = json.loads((self.folder / f"{self.name}.json").read_text("utf-8"))
            return found
        return None


class _Redirects(HTTPRedirectHandler):
    """Goes to the owner with the method and the body that the first broker got."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request:
        return Request(newurl, req.data, req.headers, method=req.get_method())


class Cluster:
    """All servers of a run."""

    def __init__(
        self, folder: Path, network: Network, shape: Shape, kind: str, settings: dict[str, str]
    ) -> None:
        """`kind`: `etcd` or `zk`. `settings`: environment of brokers and bookies. Raises NotHereError of the
        tests."""
        self.shape = shape
        self.network = network
        self.folder = folder
        hosts = ",".join(f"{network.address(each)}:{_CLIENT_PORT}" for each in shape.metadata)
        self.metadata_url = f"{kind}://{hosts}/ledgers"
        self.servers: dict[str, Server] = {}
        made = self._etcd() if kind == "etcd" else self._zookeeper()
        self.servers.update({name: self._server(name, command, {}) for name, command in made.items()})
        self.clocks: dict[str, Any] = {}
        for name in (*shape.bookies, *shape.brokers):
            environment = {"MAGNETAR_METADATA_SESSION_TIMEOUT_SECONDS": str(SESSION_S)}
            if clock_steps.why_impossible() is None:
                self.clocks[name] = clock_steps.ClockSteps(folder / f"{name}.clock")
                environment |= self.clocks[name].environment
            is_bookie = name in shape.bookies
            command = self._bookie(name) if is_bookie else self._broker(name)
            self.servers[name] = self._server(name, command, {**environment, **settings})

    def _server(self, name: str, command: list[str], environment: dict[str, str]) -> Server:
        return Server(name, self.folder, [*self.network.command(name), *command], environment)

    def _etcd(self) -> dict[str, list[str]]:
        program = metadata_servers.etcd_program()
        peers = {each: f"http://{self.network.address(each)}:{_PEER_PORT}" for each in self.shape.metadata}
        commands = {}
        for name, peer in peers.items():
            url = f"http://{self.network.address(name)}:{_CLIENT_PORT}"
            flags = {
                "name": name,
                "data-dir": str(self.folder / name),
                "listen-client-urls": url,
                "advertise-client-urls": url,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": ",".join(f"{each}={address}" for each, address in peers.items()),
                "heartbeat-interval": "100",
                "election-timeout": "1000",
                "log-level": "warn",
            }
            commands[name] = [program, *(f"--{key}={value}" for key, value in flags.items())]
        return commands

    def _zookeeper(self) -> dict[str, list[str]]:
        apache = metadata_servers.APACHE
        path = java_client.class_path(apache)
        members = [
            f"server.{number}={self.network.address(name)}:2888:3888\n"
            for number, name in enumerate(self.shape.metadata, 1)
        ]
        commands = {}
        for number, name in enumerate(self.shape.metadata, 1):
            home = self.folder / name
            home.mkdir()
            (home / "myid").write_text(str(number))
            settings = {
                "tickTime": "500",
                "initLimit": "20",
                "syncLimit": "10",
                "dataDir": str(home),
                "clientPort": str(_CLIENT_PORT),
                "admin.enableServer": "false",
                "maxClientCnxns": "0",
            }
            lines = "".join(f"{key}={value}\n" for key, value in settings.items())
            (self.folder / f"{name}.cfg").write_text(lines + ("".join(members) if len(members) > 1 else ""))
            flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ActiveProcessorCount=2"]
            flags += ["-Dzookeeper.forceSync=no", f"-Dlog4j.configurationFile={apache / 'log4j2.xml'}"]
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            commands[name] = ["java", *flags, "-cp", path, main, str(self.folder / f"{name}.cfg")]
        return commands

    def _bookie(self, name: str) -> list[str]:
        disk = self.folder / name
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(disk)], check=True)
        address = self.network.address(name)
        command = [
            sys.executable,
            "-m",
            "magnetar",
            "bookie",
            "--metadata",
            self.metadata_url,
            "--initialize",
        ]
        command += ["--data", str(disk / "data"), "--host", address, "--port", str(_BOOKIE_PORT)]
        command += ["--session-timeout", str(SESSION_S)]
        return [*command, "--ready-file", str(self.folder / f"{name}.json")]

    def _broker(self, name: str) -> list[str]:
        address = self.network.address(name)
        command = [sys.executable, "-m", "magnetar", "broker", "--metadata", self.metadata_url]
        command += ["--host", address, "--insecure", "--data", str(self.folder / name)]
        command += ["--port", str(_BROKER_PORT), "--http-port", str(_HTTP_PORT)]
        return [*command, "--ready-file", str(self.folder / f"{name}.json")]

    @property
    def service_url(self) -> str:
        """URL for clients, with all brokers."""
        hosts = ",".join(f"{self.network.address(each)}:{_BROKER_PORT}" for each in self.shape.brokers)
        return f"pulsar://{hosts}"

    def start(self) -> None:
        """Returns when everything serves. Raises TimeoutError that names what does not."""
        for name in self.shape.metadata:
            self.servers[name].start()
        first, *others = self.shape.bookies
        # The first one makes the tree.
        for names in ((first,), others, self.shape.brokers):
            for name in names:
                self.servers[name].start()
            for name in names:
                self.wait(name)

    def wait(self, name: str, deadline_s: float = START_S) -> None:
        """Returns when a broker or a bookie is ready. Starts it again when it has ended: its peers may have
        been away. Raises TimeoutError."""
        server = self.servers[name]

        def is_ready() -> bool:
            for each in (*self.shape.metadata, name):
                self.servers[each].start()
            return server.ready is not None

        wait_for(is_ready, deadline_s, f"{name} is ready, see {server.log_path}")

    def url(self, broker: str, path: str) -> str:
        """Where a broker answers over HTTP."""
        return f"http://{self.network.address(broker)}:{_HTTP_PORT}/{path}"

    def call(self, broker: str, method: str, path: str, body: object = None) -> Any:
        """The answer of an admin call, None when it is empty. Raises OSError."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url(broker, path), data, {"Content-Type": "application/json"}, method=method)
        with build_opener(_Redirects()).open(request, timeout=CALL_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def disk(self, bookie: str) -> Path:
        """The disk of a bookie, a file system of its own."""
        return self.folder / bookie

    def end(self) -> None:
        """Kills everything."""
        for each in self.servers.values():
            each.send(signal.SIGCONT)
            each.kill()


@contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    """Starts a cluster, and kills it at the end."""
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()


def wait_for(condition: Callable[[], bool], deadline_s: float, what: str) -> None:
    """Returns when the condition holds. Raises TimeoutError."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError(f"not within {deadline_s:.0f} s: {what}")
        time.sleep(0.05)  # what ends the wait happens in other processes; the deadline bounds it

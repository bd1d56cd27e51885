"""Real servers of metadata stores: processes on free ports that tests kill and start again."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support import java_client
from support.apache_bookkeeper import HERE as APACHE
from support.drivers import NotHereError
from support.object_stores import free_port
from support.standalone import wait_until

START_S = 60.0


class ServerProcess:
    """A server that keeps its port and its disk over its lives."""

    def __init__(self, folder: Path, port: int, command: list[str]) -> None:
        self.port = port
        self.address = ("127.0.0.1", port)
        self._folder = folder
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when the server answers."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder
            )
        wait_until(self.answers, START_S, f"{self._command[0]} answers")

    def answers(self) -> bool:
        """Whether the server serves."""
        assert self._process is not None
        log = self._folder / "server.log"
        assert self._process.poll() is None, log.read_text(encoding="utf-8", errors="replace")[-4000:]
        with socket.socket() as probe:
            return probe.connect_ex(self.address) == 0

    def kill(self) -> None:
        """As a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """The server hears and says nothing any more; its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)


_ATTEMPTS = 5


@contextmanager
def _running(make: Callable[[Path], ServerProcess], folder: Path) -> Iterator[ServerProcess]:
    """`make` chooses free ports. Another program may take one before the server does: then it chooses
    anew."""
    for left in reversed(range(_ATTEMPTS)):
        own = folder / str(left)
        own.mkdir(parents=True)
        server = make(own)
        try:
            server.start()
            break
        except AssertionError as error:
            server.kill()
            if not left or "address already in use" not in str(error).lower():
                raise
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def zookeeper_server(folder: Path, *, synced: bool = False) -> Iterator[ServerProcess]:
    """ZooKeeper, with sessions of one second and more. `synced`: what it writes survives a power cut. Raises
    NotHereError."""
    path = java_client.class_path(APACHE)
    with _running(lambda own: _zookeeper(own, path, synced=synced), folder) as server:
        yield server


def _zookeeper(folder: Path, path: str, *, synced: bool) -> ServerProcess:
    port = free_port()
    settings = {
        "tickTime": "500",
        "dataDir": str(folder / "data"),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
        "maxClientCnxns": "0",
    }
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    (folder / "zoo.cfg").write_text(lines, encoding="utf-8")
    flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ActiveProcessorCount=2"]
    # Tests kill the process, not the machine: what the kernel has is kept.
    flags += [f"-Dzookeeper.forceSync={'yes' if synced else 'no'}"]
    flags += [f"-Dlog4j.configurationFile={APACHE / 'log4j2.xml'}"]
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    return ServerProcess(folder, port, ["java", *flags, "-cp", path, main, str(folder / "zoo.cfg")])


ETCD_PACKAGE = "etcd-server"
ETCD_VERSION = "3.4.23-4+b4"
ETCD_SHA256 = {"amd64": "3a9445d4560ad6de1c375756b2a17d97713df44cbd20a658c871fe108af7ef5d"}
"""Of Debian's package, by architecture."""


def etcd_program() -> str:
    """Path of etcd: an installed one, or that of Debian's package, which is fetched and kept. Raises
    NotHereError."""
    folders = [os.environ.get("MAGNETAR_TEST_SERVERS", ""), os.environ.get("PATH", "")]
    found = shutil.which("etcd", path=os.pathsep.join(filter(None, folders)))
    if found is not None:
        return found
    kept = java_client.cache_home() / f"etcd-{ETCD_VERSION}"
    if not kept.exists():
        _fetch_etcd(kept)
    return str(kept / "usr" / "bin" / "etcd")


def _fetch_etcd(kept: Path) -> None:
    for tool in ("apt-get", "dpkg", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise NotHereError("etcd is not installed, and this is not a Debian that offers it")
    machine = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True).stdout.strip()
    if machine not in ETCD_SHA256:
        raise NotHereError(f"no digest of etcd for {machine} is known")
    # Into a folder of its own first: another run may be doing the same.
    unfinished = kept.with_name(f"{kept.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        command = ["apt-get", "download", "-q", f"{ETCD_PACKAGE}={ETCD_VERSION}"]
        done = subprocess.run(command, cwd=unfinished, capture_output=True, text=True, timeout=120)
        packages = list(unfinished.glob("*.deb"))
        if not packages:
            raise NotHereError(f"etcd cannot be fetched: {done.stderr.strip()[-200:]}")
        digest = hashlib.sha256(packages[0].read_bytes()).hexdigest()
        assert digest == ETCD_SHA256[machine], f"{packages[0].name} is not the pinned one"
        subprocess.run(["dpkg-deb", "-x", str(packages[0]), str(unfinished)], check=True)
        packages[0].unlink()
        if not kept.exists():
            unfinished.rename(kept)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def etcd_server(folder: Path) -> Iterator[ServerProcess]:
    """A cluster of one. Raises NotHereError."""
    program = etcd_program()
    with _running(lambda own: _etcd(own, program), folder) as server:
        yield server


def _etcd(folder: Path, program: str) -> ServerProcess:
    port, peers = free_port(), free_port()
    url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
    flags = {
        "data-dir": str(folder / "data"),
        "listen-client-urls": url,
        "advertise-client-urls": url,
        "listen-peer-urls": peer_url,
        "initial-advertise-peer-urls": peer_url,
        "initial-cluster": f"default={peer_url}",
        "heartbeat-interval": "50",
        "election-timeout": "250",
        "log-level": "warn",
    }
    command = [program, *(f"--{name}={value}" for name, value in flags.items())]
    return ServerProcess(folder, port, command)

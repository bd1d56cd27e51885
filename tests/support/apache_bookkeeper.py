"""Apache's bookies, ZooKeeper and BookKeeper's shell in a Java process, its jars fetched and checked as those
of the Java client are (`java_client.class_path`)."""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from support import java_client
from support.java_program import java_program
from support.object_stores import free_port
from support.standalone import wait_until

HERE = Path(__file__).parents[1] / "compat" / "bookkeeper"

_SETTINGS = """
allowLoopback=true
advertisedAddress=127.0.0.1
httpServerEnabled=false
enableStatistics=false
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.985
majorCompactionInterval=0
minorCompactionInterval=0
ledgerStorageClass=org.apache.bookkeeper.bookie.SortedLedgerStorage
skipListSizeLimit=16777216
journalPreAllocSizeMB=1
journalMaxGroupWaitMSec=1
zkTimeout=10000
"""

PASSWORD = "secret"
"""Password of user `bookkeeper`, which bookies and clients of Apache's know when authentication is on."""

_LOGIN = f"""
Bookie {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_bookkeeper="{PASSWORD}"; }};
BookKeeper {{ org.apache.zookeeper.server.auth.DigestLoginModule required
  username="bookkeeper" password="{PASSWORD}"; }};
"""


class ShellError(AssertionError):
    """A command failed; the message is what it printed."""


class ApacheBookKeeper:
    """The Java process. Made by `apache_bookkeeper`."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self._folder = folder
        self._process = process
        self._ports: dict[str, int] = {}
        data = folder / "zookeeper"
        data.mkdir()
        self.zookeeper = f"127.0.0.1:{self._run('zookeeper', str(data)).strip()}"
        """Host and port."""

    @property
    def pid(self) -> int:
        """Process id of the Java process, in which all servers run that it starts."""
        return self._process.pid

    def _run(self, *words: str) -> str:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\t".join(words) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"the Java process ended at {words}"
        code, out = line.rstrip("\n").split(" ")
        printed = base64.b64decode(out).decode()
        if code != "0":
            raise ShellError(f"{' '.join(words)}: {code}\n{printed}")
        return printed

    def shell(
        self,
        *words: str,
        root: str = "/ledgers",
        bookie_port: int = 3181,
        use_v2: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> str:
        """Runs a command of `bookkeeper shell` and returns its output. `bookie_port`: port of the bookie for
        commands about one bookie; `more`: further settings. Raises ShellError."""
        name = f"shell-{bookie_port}-{use_v2}"
        settings = self._settings(name, root, bookie_port, use_v2=use_v2, more=more)
        return self._run("shell", str(settings), *words)

    def _settings(
        self,
        name: str,
        root: str,
        port: int,
        *,
        use_v2: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> Path:
        file = self._folder / f"{name}{root.replace('/', '-')}.conf"
        lines = {
            "metadataServiceUri": f"zk+hierarchical://{self.zookeeper}{root}",
            "bookiePort": str(port),
            "journalDirectories": str(self._folder / name / "journal"),
            "ledgerDirectories": str(self._folder / name / "ledgers"),
            "useV2WireProtocol": str(use_v2).lower(),
            **(more or {}),
        }
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        file.write_text(text + _SETTINGS, encoding="utf-8")
        return file

    def start_bookie(self, name: str, root: str = "/ledgers", more: Mapping[str, str] | None = None) -> str:
        """Starts a bookie of Apache's, with the disk that it had before under this name; returns its id."""
        port = self._ports.setdefault(name, free_port())
        (self._folder / name).mkdir(exist_ok=True)
        self._run("bookie", name, str(self._settings(name, root, port, more=more)))
        return f"127.0.0.1:{port}"

    def start_recovery(self, name: str, root: str = "/ledgers") -> None:
        """Starts a node of Apache's auto-recovery: a candidate for the auditor, and a worker."""
        self._run(
            "recovery", name, str(self._settings(name, root, self._ports.setdefault(name, free_port())))
        )

    def stop_recovery(self, name: str) -> None:
        self._run("stop-recovery", name)

    def stop_bookie(self, name: str) -> None:
        """Stops a bookie; its disk stays."""
        self._run("stop", name)

    def bookie_process(self, name: str, root: str) -> ApacheBookieProcess:
        """A bookie in a Java process of its own, which can be killed; not started yet."""
        port = self._ports.setdefault(name, free_port())
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return ApacheBookieProcess(folder, self._settings(name, root, port), port)

    def start_local(self, count: int) -> None:
        """Starts what `localbookie COUNT` starts, below /ledgers."""
        folder = self._folder / "local"
        folder.mkdir()
        settings = folder / "local.conf"
        # Folders and ports are its own.
        where = f"metadataServiceUri=zk+hierarchical://{self.zookeeper}/ledgers\n"
        settings.write_text(where + _SETTINGS, encoding="utf-8")
        self._run("local", str(count), self.zookeeper, str(folder), str(settings))

    def change_local(self, *, by: int) -> None:
        """Starts one more of those bookies (1), or stops the last one (-1)."""
        self._run("local-add" if by > 0 else "local-remove")

    def stop_local(self) -> None:
        self._run("local-stop")


class ApacheBookieProcess:
    """A bookie of Apache's that can be killed; its disk and port stay. Made by
    `ApacheBookKeeper.bookie_process`."""

    def __init__(self, folder: Path, settings: Path, port: int) -> None:
        self.bookie_id = f"127.0.0.1:{port}"
        self._folder = folder
        self._settings = settings
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Starts the process and does not wait."""
        assert self._process is None
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += [f"-Dlog4j.configurationFile={HERE / 'log4j2.xml'}"]
        command += ["-cp", java_client.class_path(HERE), "org.apache.bookkeeper.server.Main"]
        with (self._folder / "process.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--conf", str(self._settings)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait(self) -> None:
        """Waits until it serves."""
        process = self._process
        assert process is not None
        wait_until(lambda: process.poll() is not None or self._listens(), 60, "a bookie of Apache's serves")
        assert process.poll() is None, (self._folder / "process.log").read_text(errors="replace")[-3000:]

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1.0):
            return True
        return False

    def kill(self) -> None:
        """Kills the process, as a power cut would; does nothing when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


_SMALL = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""What makes Java start fast and stay small, and slow under load."""


@contextmanager
def apache_bookkeeper(folder: Path, *, java_options: Sequence[str] = _SMALL) -> Iterator[ApacheBookKeeper]:
    """The process with a ZooKeeper, and neither cluster nor bookies yet. Raises NotHereError."""
    path = java_client.class_path(HERE)
    folder.mkdir(exist_ok=True)
    login = folder / "login.conf"
    login.write_text(_LOGIN, encoding="utf-8")
    options = [
        f"-Djava.security.auth.login.config={login}",
        # The file is about bookies.
        "-Dzookeeper.sasl.client=false",
        *java_options,
        f"-Dlog4j.configurationFile={HERE / 'log4j2.xml'}",
    ]
    with java_program(folder, HERE / "ApacheDriver.java", path, options) as process:
        yield ApacheBookKeeper(folder, process)

"""Fetching, starting and stopping the peers, each from its own registry, on free ports, on loopback.

All of them get the same promise to keep, `durable`: what is acknowledged was synced. Without it each runs
with its own default. Versions are those that were compared; see docs/performance.md.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Protocol
from xml.sax.saxutils import escape

from bench.broker import Broker, BrokerFailedError, Cpus, magnetar_command, pinned, started
from bench.driver import Driver
from bench.peers.kafka import KafkaDriver
from bench.peers.nats import NatsDriver
from bench.pulsar_driver import PulsarDriver

READY_DEADLINE_S: Final = 120.0
STOP_DEADLINE_S: Final = 30.0
COPY_JARS: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
LOCALHOST: Final = "127.0.0.1"
JAVA_PACKAGES: Final = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
    "java.base/java.lang",
)
"""What Pulsar's own start script opens to it."""


class Server(Protocol):
    """One broker of the comparison."""

    @property
    def name(self) -> str:
        """Name and version."""

    @property
    def warm_up_s(self) -> float:
        """Seconds of load before it shows what it can."""

    def fetch(self, folder: Path) -> None:
        """Get the program into `folder` unless it is there."""

    @contextmanager
    def started(self, folder: Path, scratch: Path, cpus: Cpus, *, durable: bool) -> Iterator[Broker]:
        """Run it from `folder` with its data in the empty folder `scratch`."""

    def driver(self, broker: Broker) -> Driver:
        """Speaks its protocol."""


def free_ports(count: int) -> list[int]:
    """Ports that are free at this moment."""
    sockets = [socket.create_server((LOCALHOST, 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def run_tool(command: list[str], folder: Path, **variables: str) -> None:
    """Run a program that fetches; raises BrokerFailedError with what to do."""
    if shutil.which(command[0]) is None:
        raise BrokerFailedError(f"{command[0]} is needed to fetch this peer and is not installed; install it")
    done = subprocess.run(
        command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise BrokerFailedError(f"{command[0]} ended with code {done.returncode}:\n{tail}")


@contextmanager
def process(command: list[str], scratch: Path, cpus: Cpus, port: int) -> Iterator[Broker]:
    """Start a program in `scratch`; it is ready when `port` accepts connections; stop it after the body."""
    log = scratch / "server.log"
    with log.open("wb") as output, pinned(cpus.broker):
        exec_s = time.perf_counter()
        running = subprocess.Popen(
            command,
            cwd=scratch,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        while True:
            try:
                socket.create_connection((LOCALHOST, port), timeout=1).close()
                break
            except OSError:
                if running.poll() is not None or time.perf_counter() - exec_s > READY_DEADLINE_S:
                    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
                    raise BrokerFailedError(f"{command[0]} is not ready:\n{tail}") from None
                time.sleep(0.02)
        yield Broker(f"pulsar://{LOCALHOST}:{port}", "", running.pid, exec_s, time.perf_counter() - exec_s)
    finally:
        running.terminate()
        try:
            running.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def fetch_jars(
    folder: Path,
    imported: tuple[str, str, str] | None,
    needed: list[tuple[str, str, str]],
    *,
    alone: bool = False,
) -> None:
    """Copy artifacts and what they need, or these `alone`, into FOLDER/lib; `imported` is a pom that fixes
    versions."""
    if (folder / "lib" / ".complete").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)

    def dependency(group: str, artifact: str, version: str, more: str = "") -> str:
        names = zip(("groupId", "artifactId", "version"), (group, artifact, version), strict=True)
        inner = "".join(f"<{tag}>{escape(value)}</{tag}>" for tag, value in names)
        return f"<dependency>{inner}{more}</dependency>"

    everything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    more = f"<exclusions>{everything}</exclusions>" if alone else ""
    management = ""
    if imported:
        bill = dependency(*imported, "<type>pom</type><scope>import</scope>")
        management = f"<dependencyManagement><dependencies>{bill}</dependencies></dependencyManagement>"
    (folder / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>peer</artifactId>"
        f"<version>1</version><packaging>pom</packaging>{management}"
        f"<dependencies>{''.join(dependency(*one, more) for one in needed)}</dependencies></project>\n"
    )
    run_tool(["mvn", "-B", "-q", "-U", COPY_JARS, "-DincludeScope=runtime", "-DoutputDirectory=lib"], folder)
    (folder / "lib" / ".complete").touch()


def write_properties(path: Path, settings: dict[str, object]) -> None:
    """A Java properties file."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


class _Versioned:
    """A peer that is fetched in one version."""

    product: ClassVar[str]
    version: str

    @property
    def name(self) -> str:
        return f"{self.product} {self.version}"


@dataclass(frozen=True)
class Magnetar:
    """This project, as users start it."""

    name: str = "Magnetar"
    warm_up_s: float = 5.0

    def fetch(self, folder: Path) -> None:
        """It is here."""

    @contextmanager
    def started(self, folder: Path, scratch: Path, cpus: Cpus, *, durable: bool) -> Iterator[Broker]:
        """Durable is the only default."""
        with started(magnetar_command(), scratch, cpus) as broker:
            yield broker

    def driver(self, broker: Broker) -> Driver:
        return PulsarDriver(broker.service_url)


@dataclass(frozen=True)
class Pulsar(_Versioned):
    """Apache Pulsar standalone: metadata in RocksDB, one bookie, one JVM."""

    product: ClassVar[str] = "Pulsar"
    version: str = "4.2.4"
    warm_up_s: float = 60.0
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings in addition to those that every comparison needs."""

    def fetch(self, folder: Path) -> None:
        group = "org.apache.pulsar"
        needed = ("pulsar-broker", "pulsar-package-filesystem-storage")
        # Without the project's own bill of materials versions mix, and the broker dies of a missing method.
        fetch_jars(folder, (group, "pulsar", self.version), [(group, name, self.version) for name in needed])

    @contextmanager
    def started(self, folder: Path, scratch: Path, cpus: Cpus, *, durable: bool) -> Iterator[Broker]:
        port, web = free_ports(2)
        write_properties(
            scratch / "log4j2.properties",
            {
                "status": "warn",
                "appender.c.type": "Console",
                "appender.c.name": "C",
                "appender.c.layout.type": "PatternLayout",
                "appender.c.layout.pattern": "%d{ISO8601} [%t] %-5p %c{1} - %m%n",
                "rootLogger.level": "warn",
                "rootLogger.appenderRef.c.ref": "C",
            },
        )
        write_properties(
            scratch / "standalone.conf",
            {
                "clusterName": "standalone",
                "brokerServicePort": port,
                "webServicePort": web,
                "bindAddress": LOCALHOST,
                "advertisedAddress": LOCALHOST,
                "managedLedgerDefaultEnsembleSize": 1,
                "managedLedgerDefaultWriteQuorum": 1,
                "managedLedgerDefaultAckQuorum": 1,
                "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
                "loadBalancerEnabled": "false",
                "allowAutoTopicCreationType": "non-partitioned",
                "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
                "journalSyncData": str(durable).lower(),
                "journalMaxGroupWaitMSec": 1,
                "dbStorage_readAheadCacheBatchSize": 1000,
                "flushInterval": 60000,
                "gcWaitTime": 300000,
                "diskUsageThreshold": 0.99,
                "diskUsageWarnThreshold": 0.99,
                "allowLoopback": "true",
                "functionsWorkerEnabled": "false",
                "webSocketServiceEnabled": "false",
                **self.settings,
            },
        )
        command = ["java", "-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=2g", "-XX:+UseG1GC"]
        command += [word for name in JAVA_PACKAGES for word in ("--add-opens", f"{name}=ALL-UNNAMED")]
        command += [
            "-XX:+PerfDisableSharedMem",
            "-XX:-UseNUMA",
            "-Djute.maxbuffer=10485760",
            "-Djava.net.preferIPv4Stack=true",
            "-Dio.netty.tryReflectionSetAccessible=true",
            "-Dlog4j2.is.webapp=false",
            f"-Dlog4j.configurationFile={scratch}/log4j2.properties",
            "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
            "-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
            "-cp",
            f"{scratch}:{folder}/lib/*",
            "org.apache.pulsar.PulsarStandaloneStarter",
            "--config",
            f"{scratch}/standalone.conf",
            "--no-functions-worker",
            "--no-stream-storage",
        ]
        with process(command, scratch, cpus, port) as broker:
            _await_http(f"http://{LOCALHOST}:{web}/lookup/v2/topic/persistent/public/default/probe")
            yield broker

    def driver(self, broker: Broker) -> Driver:
        return PulsarDriver(broker.service_url)


def _await_http(url: str) -> None:
    deadline_s = time.monotonic() + READY_DEADLINE_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except (urllib.error.URLError, OSError) as error:
            if time.monotonic() > deadline_s:
                raise BrokerFailedError(f"{url} does not answer: {error}") from error
            time.sleep(0.1)


@dataclass(frozen=True)
class Kafka(_Versioned):
    """One node, broker and controller in one. Durable: a sync for every flush of one message."""

    product: ClassVar[str] = "Kafka"
    version: str = "4.3.1"
    warm_up_s: float = 60.0

    def fetch(self, folder: Path) -> None:
        fetch_jars(folder, None, [("org.apache.kafka", "kafka_2.13", self.version)])

    @contextmanager
    def started(self, folder: Path, scratch: Path, cpus: Cpus, *, durable: bool) -> Iterator[Broker]:
        port, controller = free_ports(2)
        settings: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{LOCALHOST}:{controller}",
            "listeners": f"PLAINTEXT://{LOCALHOST}:{port},CONTROLLER://{LOCALHOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{LOCALHOST}:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": f"{scratch}/data",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        }
        if durable:
            settings["log.flush.interval.messages"] = 1
        write_properties(scratch / "server.properties", settings)
        java = ["java", "-Xms512m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        java += ["-XX:InitiatingHeapOccupancyPercent=35", "-cp", f"{folder}/lib/*"]
        config = f"{scratch}/server.properties"
        run_tool(
            [*java, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", config],
            scratch,
        )
        with process([*java, "kafka.Kafka", config], scratch, cpus, port) as broker:
            yield broker

    def driver(self, broker: Broker) -> Driver:
        return KafkaDriver(LOCALHOST, int(broker.service_url.rpartition(":")[2]))


@dataclass(frozen=True)
class Nats(_Versioned):
    """One server with JetStream on files. Durable: `sync_interval: always`."""

    product: ClassVar[str] = "NATS"
    version: str = "2.15.2"
    warm_up_s: float = 5.0

    def fetch(self, folder: Path) -> None:
        if not (folder / "nats-server").exists():
            folder.mkdir(parents=True, exist_ok=True)
            package = f"github.com/nats-io/nats-server/v2@v{self.version}"
            run_tool(["go", "install", package], folder, GOBIN=str(folder.absolute()))

    @contextmanager
    def started(self, folder: Path, scratch: Path, cpus: Cpus, *, durable: bool) -> Iterator[Broker]:
        (port,) = free_ports(1)
        sync = "sync_interval: always" if durable else ""
        (scratch / "nats.conf").write_text(
            f'listen: "{LOCALHOST}:{port}"\n'
            f'jetstream {{ store_dir: "{scratch}/data", max_file_store: 40G, max_memory_store: 1G\n'
            f"{sync}\n}}\n"
        )
        command = [str(folder / "nats-server"), "-c", str(scratch / "nats.conf")]
        with process(command, scratch, cpus, port) as broker:
            yield broker

    def driver(self, broker: Broker) -> Driver:
        return NatsDriver(LOCALHOST, int(broker.service_url.rpartition(":")[2]))


SERVERS: Final[dict[str, Server]] = {
    "magnetar": Magnetar(),
    "pulsar": Pulsar(),
    "kafka": Kafka(),
    "nats": Nats(),
}

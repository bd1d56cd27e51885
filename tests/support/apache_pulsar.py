"""A broker of Apache Pulsar in a Java process, its jars fetched and checked as those of the Java client are
(`java_client.class_path`). ZooKeeper and bookies are elsewhere."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from support import java_client
from support.java_program import java_program
from support.object_stores import free_port

HERE = Path(__file__).parents[1] / "compat" / "adoption"
CLUSTER = "old"
"""Name of the cluster."""

_SETTINGS = f"""
clusterName={CLUSTER}
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
managedLedgerMaxEntriesPerLedger=20
managedLedgerMinLedgerRolloverTimeMinutes=0
managedLedgerDefaultMarkDeleteRateLimit=1000
acknowledgmentAtBatchIndexLevelEnabled=true
brokerDeduplicationEntriesInterval=5
brokerDeleteInactiveTopicsEnabled=false
allowAutoTopicCreationType=non-partitioned
functionsWorkerEnabled=false
webSocketServiceEnabled=false
metadataStoreSessionTimeoutMillis=6000
numIOThreads=2
numHttpServerThreads=8
"""

_MODULES = ("java.io", "java.util.zip", "java.nio", "jdk.internal.misc", "jdk.internal.platform", "sun.net")


class ApachePulsar:
    """The Java process, and its broker while that runs. Made by `apache_pulsar`."""

    def __init__(self, folder: Path, process: subprocess.Popen[str], zookeeper: str) -> None:
        self._folder = folder
        self._process = process
        self._zookeeper = zookeeper
        self._port, self._web_port = free_port(), free_port()
        self.broker_url = f"pulsar://127.0.0.1:{self._port}"
        self.http_url = f"http://127.0.0.1:{self._web_port}"

    def _run(self, *words: str) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\t".join(words) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"the Java process ended at {words}"
        code, out = line.rstrip("\n").split(" ")
        assert code == "0", f"{words}: {code}\n{base64.b64decode(out).decode()}"

    def setup(self) -> None:
        """Makes the metadata of the cluster."""
        store = f"zk:{self._zookeeper}"
        options = {
            "--cluster": CLUSTER,
            "--metadata-store": store,
            "--configuration-metadata-store": store,
            "--web-service-url": self.http_url,
            "--broker-service-url": self.broker_url,
            "--default-namespace-bundle-number": "4",
        }
        self._run("setup", *(word for option in options.items() for word in option))

    def start(self, **settings: str) -> None:
        """Starts the broker, with further settings; it serves on return."""
        file = self._folder / "broker.conf"
        lines = {
            "metadataStoreUrl": f"zk:{self._zookeeper}",
            "configurationMetadataStoreUrl": f"zk:{self._zookeeper}",
            "brokerServicePort": str(self._port),
            "webServicePort": str(self._web_port),
            **settings,
        }
        file.write_text(_SETTINGS + "".join(f"{key}={value}\n" for key, value in lines.items()), "utf-8")
        self._run("start", str(file))

    def stop(self) -> None:
        """Stops the broker, as SIGTERM does."""
        self._run("stop")

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """Calls `/admin/v2/PATH`; the answer, None for an empty one."""
        headers = {"Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.http_url}/admin/v2/{path}", data=data, method=method, headers=headers)
        with urlopen(request, timeout=30) as answer:
            said = answer.read()
        return json.loads(said) if said else None


@contextmanager
def apache_pulsar(folder: Path, zookeeper: str) -> Iterator[ApachePulsar]:
    """The process without a broker yet. `zookeeper`: HOST:PORT. Raises NotHereError."""
    options = [
        "-Xmx512m",
        "-XX:MaxDirectMemorySize=512m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        *(f"--add-opens=java.base/{module}=ALL-UNNAMED" for module in _MODULES),
        "--add-opens=java.management/sun.management=ALL-UNNAMED",
        "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
        "--enable-native-access=ALL-UNNAMED",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
        "-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
        f"-Dlog4j.configurationFile={HERE.parent / 'bookkeeper' / 'log4j2.xml'}",
    ]
    with java_program(folder, HERE / "PulsarDriver.java", java_client.class_path(HERE), options) as process:
        yield ApachePulsar(folder, process, zookeeper)

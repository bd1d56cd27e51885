"""Real clusters of several brokers: a metadata service, two bookies, and brokers that come and go."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from support.bookie_process import BookieProcess
from support.drivers import NotHereError
from support.metadata_servers import ServerProcess, etcd_server, zookeeper_server
from support.standalone import ADMIN_DEADLINE_S, StandaloneProcess

SESSION_S = 4
"""Seconds until the metadata service ends the session of a killed broker, when no broker removes its records
before."""


class BrokerCluster:
    """Brokers on one metadata service and its bookies."""

    def __init__(self, folder: Path, metadata: str, server: ServerProcess) -> None:
        self.metadata = metadata
        self.server = server
        self.brokers: list[StandaloneProcess] = []
        self.bookies: list[BookieProcess] = []
        self._folder = folder

    def start_broker(
        self, *options: str, environment: dict[str, str] | None = None, log: Path | None = None
    ) -> StandaloneProcess:
        """Another broker, which serves on return. `log`: the file that it appends to."""
        process = StandaloneProcess(
            self._folder / f"broker{len(self.brokers)}",
            role="broker",
            options=("--metadata", self.metadata, *options),
            environment={
                "MAGNETAR_METADATA_SESSION_TIMEOUT_SECONDS": str(SESSION_S),
                **(environment or {}),
            },
        )
        process.log_path = log or process.log_path
        self.brokers.append(process)
        return process.start()

    @property
    def service_url(self) -> str:
        """URL for clients, with the addresses of all running brokers."""
        hosts = [each.broker_url.removeprefix("pulsar://") for each in self.brokers if each.running]
        return f"pulsar://{','.join(hosts)}"

    def owner_of(self, topic: str) -> StandaloneProcess:
        """The broker that serves a topic of public/default, as another one tells it."""
        return self.owner_of_by(next(each for each in self.brokers if each.running), topic)

    def owner_of_by(self, asked: StandaloneProcess, topic: str) -> StandaloneProcess:
        """The broker that serves a topic of public/default, as this one tells it."""
        url = lookup(asked, topic)["brokerUrl"]
        return next(each for each in self.brokers if each.running and each.broker_url == url)

    def stop(self) -> None:
        """Ends all brokers."""
        for each in self.brokers:
            if each.running:
                each.kill()


def lookup(broker: StandaloneProcess, topic: str) -> dict[str, Any]:
    """What a broker answers to a look-up over HTTP, redirects followed."""
    url = f"{broker.http_url}/lookup/v2/topic/persistent/public/default/{topic}"
    with urlopen(url, timeout=ADMIN_DEADLINE_S) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def cluster_or_skip(kind: str, factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    """For fixtures: a cluster of `broker_cluster`, or the reason why it cannot be had here."""
    try:
        with broker_cluster(factory.mktemp(kind), kind=kind) as cluster:
            yield cluster
    except NotHereError as error:  # the service's package could not be fetched: it says which and why
        pytest.skip(str(error))


@contextmanager
def broker_cluster(
    folder: Path, *, kind: str = "zk", bookies: int = 2, synced: bool = False
) -> Iterator[BrokerCluster]:
    """A cluster without brokers. `kind`: `zk` or `etcd`; `synced`: ZooKeeper syncs what it writes, as etcd
    always does. Raises NotHereError."""
    with contextlib.ExitStack() as stack:
        at = folder / "metadata"
        server = stack.enter_context(zookeeper_server(at, synced=synced) if kind == "zk" else etcd_server(at))
        metadata = f"{kind}://127.0.0.1:{server.port}/ledgers"
        started = [BookieProcess(folder / f"bookie{number}", metadata) for number in range(bookies)]
        for number, bookie in enumerate(started):
            stack.callback(bookie.kill)
            bookie.begin()
            if not number:
                # The first one makes the tree.
                bookie.wait()
        for bookie in started[1:]:
            bookie.wait()
        cluster = BrokerCluster(folder, metadata, server)
        cluster.bookies = started
        stack.callback(cluster.stop)
        yield cluster

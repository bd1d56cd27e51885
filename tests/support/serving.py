"""What a test talks to when it does not matter how many processes serve: a standalone, or three brokers.

`pytest --cluster` chooses the brokers. It runs only tests without the mark `one_process`, and those start
what they talk to here, not with `StandaloneProcess`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request

import pytest

from support.broker_clusters import BrokerCluster, broker_cluster
from support.drivers import NotHereError
from support.standalone import CLUSTER, StandaloneProcess

BROKERS: Final = 3

ONE_PROCESS: Final = {
    "own": "starts what it needs itself: bookies, a metadata service, a proxy, several brokers; or no server",
    "folder": "reads, fills, damages or moves the data folder of a standalone",
    "kills": "kills the process that serves; `test_many_brokers.py` and chaos kill brokers of clusters",
    "inside": "looks into one process: memory, descriptors, metrics, limits, bytes on a raw socket",
    "alone": "what one broker offers and several do not: wildcards, WebSockets with a certificate alone",
    "start": "how a standalone starts and stops, and finds its settings and addresses",
    "history": "history of a standalone server; test_history_on_a_cluster.py has that of brokers",
}
"""Reasons not to run with `--cluster`: the argument of the mark `one_process`."""


def on_a_cluster() -> str:
    """Kind of the metadata service of the cluster that tests run against; empty when they run against
    standalones."""
    return os.environ.get(CLUSTER, "")


@contextmanager
def serving(
    folder: Path,
    *,
    ephemeral: bool = False,
    options: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[StandaloneProcess]:
    """Starts what a test talks to, and ends it; arguments as those of `StandaloneProcess`."""
    with server(folder, ephemeral=ephemeral, options=options, environment=environment) as process:
        yield process.start()
        process.stop()


@contextmanager
def server(
    folder: Path,
    *,
    ephemeral: bool = False,
    options: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[StandaloneProcess]:
    """The same for a test that starts it and stops it: not started yet, killed at the end."""
    given = dict(environment or {})
    with ExitStack() as stack:
        if kind := on_a_cluster():
            process: StandaloneProcess = ThreeBrokers(
                folder, _cluster(stack, folder, kind), options=options, environment=given
            )
        else:
            process = StandaloneProcess(folder, ephemeral=ephemeral, options=options, environment=given)
        stack.callback(process.kill)
        yield process


def _cluster(stack: ExitStack, folder: Path, kind: str) -> BrokerCluster:
    try:
        return stack.enter_context(broker_cluster(folder / "cluster", kind=kind))
    except NotHereError as error:  # the service's package could not be fetched: it says which and why
        pytest.skip(str(error))


class ThreeBrokers(StandaloneProcess):
    """Brokers of a cluster in the place of a standalone. Calls over HTTP go to the first one, which has a
    third of the topics; clients get the addresses of all. They write one log."""

    def __init__(
        self, folder: Path, cluster: BrokerCluster, *, options: tuple[str, ...], environment: dict[str, str]
    ) -> None:
        super().__init__(folder, options=options, environment=environment)
        self._cluster = cluster
        self._given = environment
        self._http_urls: list[str] = []

    @property
    def pid(self) -> int:
        raise AssertionError("there are several processes: the test needs the mark one_process")

    def start(self) -> StandaloneProcess:
        """Starts three brokers; when they were stopped, with the same metadata and bookies."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # The name of a standalone's cluster: tests name it in policies.
        options = ("--cluster", "standalone", *self._options)
        started = [
            self._cluster.start_broker(*options, environment=self._given, log=self.log_path)
            for _ in range(BROKERS)
        ]
        told = [json.loads((each.folder / "ready.json").read_text()) for each in started]
        joined = {
            name: _joined([each[name] for each in told])
            for name in ("broker_url", "broker_tls_url")
            if told[0].get(name)
        }
        (self.folder / "ready.json").write_text(json.dumps({**told[0], **joined}))
        self.broker_url, self.http_url = joined["broker_url"], told[0]["http_url"]
        self._http_urls = [each["http_url"] for each in told]
        # A bundle that is moved for its load has its topics opened anew, which trims those without a
        # subscription: tests of one broker expect no such moment.
        try:
            self.admin("POST", "brokers/configuration/loadBalancerSheddingEnabled/false")
        except HTTPError as error:  # callers must show credentials: then it may happen
            error.close()
        return self

    @property
    def http_urls(self) -> list[str]:
        """Addresses of the admin API of all brokers."""
        return self._http_urls

    @property
    def running(self) -> bool:
        """Whether brokers run."""
        return any(each.running for each in self._cluster.brokers)

    def kill(self) -> None:
        """SIGKILL to all brokers, as a crash."""
        self._cluster.stop()

    def stop(self) -> int:
        """SIGTERM to one broker after the other; 0 when each has ended in order."""
        return max((each.stop() for each in self._cluster.brokers if each.running), default=0)


def _joined(urls: list[str]) -> str:
    """One service URL with the addresses of all."""
    scheme = urls[0].partition("://")[0]
    return f"{scheme}://{','.join(url.partition('://')[2] for url in urls)}"


def follow_redirects() -> None:
    """Has `urllib` follow a redirect to the owner of a topic with method, body and credentials, as the
    clients of Pulsar's admin API do. Its own handler refuses those of other methods than GET."""
    # All openers have this class.
    HTTPRedirectHandler.redirect_request = _same_call  # type: ignore[method-assign]


def _same_call(
    _self: HTTPRedirectHandler,
    request: Request,
    _answer: IO[bytes],
    code: int,
    _reason: str,
    _headers: HTTPMessage,
    url: str,
) -> Request:
    assert code == 307, code
    return Request(url, request.data, dict(request.header_items()), method=request.get_method())

"""Brokers of a cluster keep their load even, with a real ZooKeeper: one joins under load, the leader dies,
and a bundle that is too large is split."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pulsar
import pytest
from click.testing import CliRunner

from magnetar.cli.main import magnetar
from support.broker_clusters import BrokerCluster, broker_cluster
from support.drivers import NotHereError
from support.official import QUIET
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

NAMESPACE = "public/busy"
TOPICS = [f"persistent://{NAMESPACE}/topic-{number}" for number in range(12)]
LIMIT_S = 120.0
"""For what takes some seconds on a quiet machine."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    """One broker."""
    try:
        with broker_cluster(tmp_path_factory.mktemp("zk")) as cluster:
            cluster.start_broker()
            yield cluster
    except NotHereError as error:  # the service's package could not be fetched: it says which and why
        pytest.skip(str(error))


class Stream:
    """Publishes to all topics, as long as it is entered."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self._client = pulsar.Client(cluster.service_url, operation_timeout_seconds=60, logger=QUIET)
        self._producers = [
            self._client.create_producer(topic, send_timeout_millis=0, block_if_queue_full=True)
            for topic in TOPICS
        ]
        self._ends = threading.Event()
        self.failed: list[object] = []
        self._thread = threading.Thread(target=self._publish)
        self._thread.start()

    def _publish(self) -> None:
        while not self._ends.wait(0.01):
            for producer in self._producers:
                producer.send_async(b"x", lambda result, _: self._told(result))

    def _told(self, result: pulsar.Result) -> None:
        if result != pulsar.Result.Ok:
            self.failed.append(result)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        """Stops publishing, whatever became of the test."""
        self._ends.set()
        self._thread.join()
        self._client.close()

    def check(self) -> None:
        """Everything is acknowledged."""
        self._ends.set()
        self._thread.join()
        for producer in self._producers:
            producer.flush()
        assert not self.failed


def broker_id(broker: StandaloneProcess) -> str:
    return broker.http_url.removeprefix("http://")


def status(cluster: BrokerCluster, *options: str) -> list[dict[str, object]]:
    arguments = ["cluster", "status", "--metadata", cluster.metadata, "-o", "json", *options]
    answer = CliRunner().invoke(magnetar, arguments)
    assert answer.exit_code == 0, answer.output
    found: list[dict[str, object]] = json.loads(answer.output)
    return found


def bundles_of(cluster: BrokerCluster, broker: StandaloneProcess) -> list[object]:
    """Those of the busy namespace."""
    rows = status(cluster, "--bundles")
    return [
        row["bundle"]
        for row in rows
        if row["broker"] == broker_id(broker) and NAMESPACE in str(row["bundle"])
    ]


def leaders(cluster: BrokerCluster) -> list[object]:
    return [row["broker"] for row in status(cluster) if row["leader"]]


def test_a_broker_that_joins_takes_its_share_and_one_that_leads_is_replaced(cluster: BrokerCluster) -> None:
    first = cluster.brokers[0]
    first.admin("PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 8}})
    with Stream(cluster) as stream:
        wait_until(lambda: leaders(cluster) == [broker_id(first)], LIMIT_S, "there is a leader")
        second = cluster.start_broker()
        wait_until(lambda: len(bundles_of(cluster, second)) >= 2, LIMIT_S, "the new broker has bundles")
        for asked in (first, second):
            assert asked.admin("GET", "brokers/leaderBroker")["brokerId"] == broker_id(first)
        wait_until(lambda: status(cluster, "--moves"), LIMIT_S, "the moves are told")
        moved = status(cluster, "--moves")
        assert {(row["from"], row["to"]) for row in moved} == {(broker_id(first), broker_id(second))}
        stream.check()
    first.kill()
    wait_until(lambda: leaders(cluster) == [broker_id(second)], LIMIT_S, "the other one leads")


def test_a_bundle_that_is_too_large_is_split_and_its_parts_are_shared(cluster: BrokerCluster) -> None:
    first = cluster.brokers[0]
    first.admin("PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 1}})
    settings = "brokers/configuration"
    first.admin("POST", f"{settings}/loadBalancerNamespaceBundleMaxTopics/3")
    first.admin("POST", f"{settings}/defaultNamespaceBundleSplitAlgorithm/topic_count_equally_divide")
    with Stream(cluster) as stream:

        def count() -> int:
            return len(first.admin("GET", f"namespaces/{NAMESPACE}/bundles")["boundaries"]) - 1

        wait_until(lambda: count() == 4, LIMIT_S, "no bundle has more than three topics")
        second = cluster.start_broker()
        wait_until(lambda: len(bundles_of(cluster, second)) >= 2, LIMIT_S, "the new broker has some of them")
        stream.check()


def test_an_isolation_policy_moves_bundles_and_keeps_them(cluster: BrokerCluster) -> None:
    first = cluster.brokers[0]
    second = cluster.start_broker()
    first.admin("PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 4}})
    with Stream(cluster) as stream:
        policy = {"namespaces": [NAMESPACE], "primary": [broker_id(second)], "secondary": []}
        first.admin("POST", "clusters/standalone/namespaceIsolationPolicies/p", policy)
        wait_until(
            lambda: len(bundles_of(cluster, second)) == 4 and not bundles_of(cluster, first),
            LIMIT_S,
            "the primary broker has all bundles",
        )
        stream.check()

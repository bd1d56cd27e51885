"""Transactions over topics of several brokers, with the official Java client, while brokers are killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from support import java_client
from support.broker_clusters import BrokerCluster, cluster_or_skip, lookup
from support.drivers import NotHereError
from support.java_program import java_program
from support.standalone import ADMIN_DEADLINE_S, StandaloneProcess, wait_until
from support.transforming import Lines, numbers_in, prepare

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

HERE = Path(__file__).parent
TOPIC = "persistent://public/default/"
INPUTS = 120
ON = {"MAGNETAR_TRANSACTIONS": "true", "MAGNETAR_DEDUPLICATION": "true"}
"""A killed broker may have stored a message without having told its producer, which sends it again: without
deduplication its transaction then has it twice, as in Pulsar."""


ZK = pytest.param("zk", marks=pytest.mark.nightly("the same on etcd"))


@pytest.fixture(scope="module", params=["etcd", ZK])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster]:
    yield from cluster_or_skip(request.param, tmp_path_factory)


@pytest.fixture
def cluster(service: BrokerCluster) -> Iterator[BrokerCluster]:
    """Three brokers, which end with the test."""
    for _ in range(3):
        service.start_broker(environment=ON)
    yield service
    service.stop()


def coordinator(cluster: BrokerCluster, number: int = 0) -> StandaloneProcess:
    """The broker that serves a coordinator."""
    asked = next(each for each in cluster.brokers if each.running)
    name = f"pulsar/system/transaction_coordinator_assign-partition-{number}"
    with urlopen(f"{asked.http_url}/lookup/v2/topic/persistent/{name}", timeout=ADMIN_DEADLINE_S) as answer:
        url = json.load(answer)["brokerUrl"]
    return next(each for each in cluster.brokers if each.running and each.broker_url == url)


def apart(cluster: BrokerCluster) -> list[str]:
    """Names of three topics: the first two have different brokers."""
    names = [f"part-{number}" for number in range(12)]
    owners = {name: lookup(cluster.brokers[-1], name)["brokerUrl"] for name in names}
    first = names[0]
    second = next(name for name in names if owners[name] != owners[first])
    return [first, second, next(name for name in names if name not in (first, second))]


def test_each_input_has_its_output_once_in_topics_of_several_brokers(
    cluster: BrokerCluster, tmp_path: Path
) -> None:
    try:
        path = java_client.class_path()
    except NotHereError as error:  # Java or its packages could not be had: it says which and why
        pytest.skip(str(error))
    left, right, source = apart(cluster)
    prepare(cluster.service_url, TOPIC + source, (TOPIC + left, TOPIC + right), INPUTS)
    arguments = (cluster.service_url, TOPIC + source, TOPIC + left, TOPIC + right)
    source_file = HERE / "Transforming.java"
    with java_program(tmp_path, source_file, path, ["-Xmx256m"], arguments) as program:
        lines = Lines(program)
        wait_until(lambda: len(lines.committed()) >= 20, 90, "20 transactions are committed")
        coordinator(cluster).kill()
        wait_until(lambda: len(lines.committed()) >= 50, 120, "transactions go on without the coordinator")
        cluster.start_broker(environment=ON)
        cluster.owner_of(right).kill()
        cluster.start_broker(environment=ON)
        wait_until(lambda: "idle" in lines.all, 300, "nothing is left to do")
    outputs = [numbers_in(cluster.service_url, TOPIC + name) for name in (left, right)]
    for name, found in zip((left, right), outputs, strict=True):
        twice = [value for value, count in Counter(found).items() if count > 1]
        assert not twice, (
            f"{name} has {twice} more than once: {[line for line in lines.all if 'failed' in line]}"
        )
        assert sorted(found) == list(range(INPUTS)), f"{name} lacks inputs"
    assert set(map(int, lines.committed())) <= set(outputs[0])
    asked = next(each for each in cluster.brokers if each.running)
    stats = asked.admin("GET", f"persistent/public/default/{source}/stats")
    assert stats["subscriptions"]["work"]["msgBacklog"] == 0

"""Several brokers on one cluster, with a real ZooKeeper or etcd and the official client: look-ups, redirects,
moves of bundles, and brokers that are killed, stopped and paused."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import pulsar
import pytest
from click.testing import CliRunner

from magnetar.cli.main import magnetar
from support.broker_clusters import BrokerCluster, cluster_or_skip, lookup
from support.official import QUIET, receive_all
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

TOPIC = "persistent://public/default/"
TOPICS = [f"topic-{number}" for number in range(8)]
"""In all four bundles."""


ZK = pytest.param("zk", marks=pytest.mark.nightly("etcd, and ZooKeeper where a session ends or is away"))


@pytest.fixture(scope="module", params=[ZK, "etcd"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster]:
    yield from cluster_or_skip(request.param, tmp_path_factory)


@pytest.fixture
def cluster(service: BrokerCluster) -> Iterator[BrokerCluster]:
    """Two brokers, which end with the test."""
    service.start_broker()
    service.start_broker()
    yield service
    service.stop()


def client_of(cluster: BrokerCluster) -> pulsar.Client:
    return pulsar.Client(cluster.service_url, operation_timeout_seconds=60, logger=QUIET)


class Publisher:
    """Sends numbers and notes what was acknowledged."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.failed: list[object] = []
        self._next = 0
        self._producer = client.create_producer(
            TOPIC + topic, batching_enabled=False, send_timeout_millis=0, block_if_queue_full=True
        )

    def send(self, count: int) -> None:
        """Sends so many more; does not wait."""
        for _ in range(count):
            number, self._next = self._next, self._next + 1
            self._producer.send_async(b"%d" % number, lambda result, _, n=number: self._told(n, result))

    def _told(self, number: int, result: pulsar.Result) -> None:
        (self.acknowledged if result == pulsar.Result.Ok else self.failed).append(number)

    def settle(self) -> None:
        """Returns when everything is acknowledged."""
        wait_until(
            lambda: len(self.acknowledged) == self._next, 60, f"{self._next} messages are acknowledged"
        )
        assert not self.failed


def received(client: pulsar.Client, topic: str) -> list[int]:
    """All that the topic holds, in its order, until there is no more."""
    reader = client.create_reader(TOPIC + topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(10_000).data()))
    reader.close()
    return found


def check_order(found: list[int], acknowledged: list[int]) -> None:
    """Nothing acknowledged is missing, and first copies are in order: a client may send one twice."""
    firsts = list(dict.fromkeys(found))
    assert set(acknowledged) <= set(firsts)
    assert firsts == sorted(firsts)


def test_bundles_are_shared_and_look_ups_lead_to_their_owners(cluster: BrokerCluster) -> None:
    first, second = cluster.brokers[-2:]
    served = {topic: lookup(first, topic)["brokerUrl"] for topic in TOPICS}
    assert set(served.values()) == {first.broker_url, second.broker_url}
    assert {topic: lookup(second, topic)["brokerUrl"] for topic in TOPICS} == served
    client = client_of(cluster)
    for topic in TOPICS:
        consumer = client.subscribe(TOPIC + topic, "all")
        client.create_producer(TOPIC + topic).send(topic.encode())
        assert receive_all(consumer, 1) == [topic.encode()]
    client.close()
    brokers = [each.http_url.removeprefix("http://") for each in (first, second)]
    assert first.admin("GET", "brokers") == sorted(brokers)
    # Calls about a topic reach its owner, whichever broker is asked.
    for topic in TOPICS:
        for broker in (first, second):
            assert broker.admin("GET", f"persistent/public/default/{topic}/stats")["msgInCounter"] == 1
    owned = [first.admin("GET", f"brokers/standalone/{broker}/ownedNamespaces") for broker in brokers]
    assert sorted(map(len, owned)) == [2, 2]


def test_every_broker_is_healthy(cluster: BrokerCluster) -> None:
    for broker in cluster.brokers[-2:]:
        with build_opener().open(f"{broker.http_url}/admin/v2/brokers/health") as answer:
            assert answer.read() == b"ok"


def test_calls_about_topics_of_others_are_redirected(cluster: BrokerCluster) -> None:
    class Stay(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    owner = cluster.owner_of(TOPICS[0])
    other = next(each for each in cluster.brokers[-2:] if each is not owner)
    path = f"/admin/v2/persistent/public/default/{TOPICS[0]}/stats?getPreciseBacklog=true"
    with pytest.raises(HTTPError) as refused:
        build_opener(Stay).open(Request(other.http_url + path))
    assert refused.value.code == 307
    assert refused.value.headers["Location"] == owner.http_url + path
    refused.value.close()


@pytest.mark.every_run
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_the_owner_goes_away_under_load(cluster: BrokerCluster, how: str) -> None:
    topic = f"goes-{how}"
    client = client_of(cluster)
    publisher = Publisher(client, topic)
    publisher.send(200)
    publisher.settle()
    publisher.send(200)
    owner = cluster.owner_of(topic)
    if how == "killed":
        owner.kill()
    else:
        assert owner.stop() == 0
    publisher.send(200)
    publisher.settle()
    check_order(received(client, topic), publisher.acknowledged)
    assert cluster.owner_of(topic) is not owner
    client.close()


@pytest.mark.every_run
def test_a_paused_owner_is_replaced_and_acknowledges_nothing_more(cluster: BrokerCluster) -> None:
    """Its session ends while it cannot notice; when it goes on, its topics go away."""
    topic = "paused"
    owner = cluster.owner_of(topic)
    other = next(each for each in cluster.brokers[-2:] if each is not owner)
    client = pulsar.Client(owner.broker_url, logger=QUIET, operation_timeout_seconds=60)
    publisher = Publisher(client, topic)
    publisher.send(100)
    publisher.settle()
    owner.send_signal(signal.SIGSTOP)
    publisher.send(100)
    wait_until(lambda: lookup(other, topic)["brokerUrl"] == other.broker_url, 60, "it has another owner")
    second_client = pulsar.Client(other.broker_url, logger=QUIET)
    second_client.create_producer(TOPIC + topic).send(b"1000")
    owner.send_signal(signal.SIGCONT)
    publisher.settle()
    found = received(second_client, topic)
    second_client.close()
    found.remove(1000)
    check_order(found, publisher.acknowledged)
    assert "the session with the metadata store is lost" in owner.log_text()
    client.close()


def scraped(broker: StandaloneProcess) -> str:
    with build_opener().open(f"{broker.http_url}/metrics") as answer:
        return str(answer.read().decode())


@pytest.mark.every_run
def test_clients_attach_while_the_metadata_service_is_away(cluster: BrokerCluster) -> None:
    """At the owner of a loaded topic, to which any broker sends them; elsewhere they hear of it soon."""
    topic = "away"
    owner = cluster.owner_of(topic)
    other = next(each for each in cluster.brokers[-2:] if each is not owner)
    client = client_of(cluster)
    client.create_producer(TOPIC + topic).send(b"before")
    client.subscribe(TOPIC + topic, "all", initial_position=pulsar.InitialPosition.Earliest).close()
    # The brokers have been asked for these, so they know that the topic has no partitions, and its owner.
    for asked in (owner, other):
        assert lookup(asked, topic)["brokerUrl"] == owner.broker_url
        pulsar.Client(asked.broker_url, logger=QUIET).get_topic_partitions(TOPIC + topic)
    cluster.server.kill()
    try:
        for asked in (owner, other):
            wait_until(lambda b=asked: "\nmagnetar_metadata_service_connected 0\n" in scraped(b), 60, "told")
            assert "the metadata service cannot be reached" in asked.log_text()
        for asked in (owner, other):
            late = pulsar.Client(asked.broker_url, operation_timeout_seconds=60, logger=QUIET)
            late.create_producer(TOPIC + topic).send(b"while")
            assert lookup(asked, topic)["brokerUrl"] == owner.broker_url
            late.close()
        consumer = client.subscribe(TOPIC + topic, "all")
        assert receive_all(consumer, 3) == [b"before", b"while", b"while"]
        with pytest.raises(HTTPError) as refused:
            lookup(other, TOPICS[0])
        assert refused.value.code == 503
        assert "cannot be reached now; try again" in json.load(refused.value)["reason"]
        refused.value.close()
    finally:
        cluster.server.start()
    for asked in (owner, other):
        wait_until(lambda b=asked: "\nmagnetar_metadata_service_connected 1\n" in scraped(b), 60, "told")
    client.close()


def test_a_bundle_moves_while_clients_use_it(cluster: BrokerCluster) -> None:
    topic = "moves"
    client = client_of(cluster)
    consumer = client.subscribe(TOPIC + topic, "all")
    publisher = Publisher(client, topic)
    publisher.send(50)
    publisher.settle()
    for _ in range(4):
        owner = cluster.owner_of(topic)
        other = next(each for each in cluster.brokers[-2:] if each is not owner)
        with_bundle = f"{other.http_url}/lookup/v2/topic/persistent/public/default/{topic}/bundle"
        bundle = build_opener().open(with_bundle).read().decode()
        publisher.send(50)
        to = other.http_url.removeprefix("http://")
        owner.admin("PUT", f"namespaces/public/default/{bundle}/unload?destinationBroker={to}")
        publisher.send(50)
        publisher.settle()
        assert cluster.owner_of(topic) is other
    # Before the subscription acknowledges: each move ended a ledger, and retention deletes acknowledged ones.
    check_order(received(client, topic), publisher.acknowledged)
    found = [int(payload) for payload in receive_all(consumer, 450)]
    assert sorted(set(found)) == list(range(450))
    client.close()


def test_a_drained_broker_owns_nothing(cluster: BrokerCluster) -> None:
    first, second = cluster.brokers[-2:]
    for topic in TOPICS:
        lookup(first, topic)
    name = first.http_url.removeprefix("http://")

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(magnetar, ["cluster", *arguments, "--metadata", cluster.metadata])
        assert result.exit_code == 0, result.output
        return result.output

    def bundles_of(broker: str) -> int:
        (row,) = [row for row in json.loads(run("status", "-o", "json")) if row["broker"] == broker]
        return int(row["bundles"])

    assert bundles_of(name) == 2
    run("drain", name)
    wait_until(lambda: not bundles_of(name), 30, "all bundles have left")
    assert {lookup(first, topic)["brokerUrl"] for topic in TOPICS} == {second.broker_url}
    run("undrain", name)
    assert len(run("status", "--bundles").splitlines()) == 5


def test_a_split_bundle_has_owners_for_its_parts(cluster: BrokerCluster) -> None:
    owner, other = cluster.brokers[-2:]
    owner.admin("PUT", "namespaces/public/split", {"bundles": {"numBundles": 1}})
    url = f"{owner.http_url}/lookup/v2/topic/persistent/public/split/topic"
    client = client_of(cluster)
    producer = client.create_producer("persistent://public/split/topic")
    producer.send(b"before")
    other.admin("PUT", "namespaces/public/split/0x00000000_0xffffffff/split")
    producer.send(b"after")
    assert build_opener().open(f"{url}/bundle").read() != b"0x00000000_0xffffffff"
    reader = client.create_reader("persistent://public/split/topic", pulsar.MessageId.earliest)
    assert [reader.read_next(10_000).data() for _ in range(2)] == [b"before", b"after"]
    client.close()


def test_deletions_reach_what_another_broker_serves(cluster: BrokerCluster) -> None:
    """No broker goes on with a topic that was deleted under it: what it acknowledged would be nowhere."""
    first, second = cluster.brokers[-2:]
    client = client_of(cluster)
    first.admin("PUT", "namespaces/public/gone")
    first.admin("PUT", "persistent/public/default/kept/partitions", 8)
    parts = [f"kept-partition-{number}" for number in range(8)]
    assert {cluster.owner_of(part) for part in parts} == {first, second}
    producers = [
        client.create_producer(f"persistent://public/gone/{topic}", send_timeout_millis=2000)
        for topic in TOPICS
    ]
    kept = client.create_producer(
        f"{TOPIC}kept", message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    for number in range(8):
        kept.send(b"%d" % number)
        producers[number].send(b"before")
    for broker in (first, second):
        with pytest.raises(HTTPError) as refused:
            broker.admin("DELETE", "persistent/public/default/kept/partitions")
        assert refused.value.code == 412  # it has producers
        refused.value.close()
    consumer = client.subscribe(f"{TOPIC}kept", "all", initial_position=pulsar.InitialPosition.Earliest)
    assert sorted(receive_all(consumer, 8)) == [b"%d" % number for number in range(8)]
    second.admin("DELETE", "namespaces/public/gone?force=true")
    for producer in producers:
        with pytest.raises(pulsar.exceptions.PulsarException):
            producer.send(b"after")
    client.close()


def test_calls_about_all_partitions_reach_every_owner(cluster: BrokerCluster) -> None:
    """Through a broker that owns nothing, too."""
    first, second = cluster.brokers[-2:]
    topic = "persistent/public/default/wide"
    first.admin("PUT", f"{topic}/partitions", 8)
    assert {cluster.owner_of(f"wide-partition-{number}") for number in range(8)} == {first, second}
    third = cluster.start_broker()
    client = client_of(cluster)
    consumer = client.subscribe(f"{TOPIC}wide", "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(
        f"{TOPIC}wide", message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    for number in range(16):
        producer.send(b"%d" % number)
    assert sorted(map(int, receive_all(consumer, 16))) == list(range(16))
    for broker in (third, first, second):
        stats = broker.admin("GET", f"{topic}/partitioned-stats")
        assert (stats["msgInCounter"], len(stats["partitions"])) == (16, 8)
        assert len({each["ownerBroker"] for each in stats["partitions"].values()}) == 2
        assert len(broker.admin("GET", f"{topic}/partitioned-internalStats")["partitions"]) == 8
        assert broker.admin("GET", f"{topic}/subscriptions") == ["s"]
    # What changes something, too.
    again = f"{topic}/subscription/again"

    def backlog() -> int:
        return int(first.admin("GET", f"{topic}/partitioned-stats")["subscriptions"]["again"]["msgBacklog"])

    third.admin("PUT", again, "earliest")
    assert backlog() == 16
    third.admin("POST", f"{again}/skip_all")
    assert backlog() == 0
    third.admin("POST", f"{again}/resetcursor/0")
    assert backlog() == 16
    third.admin("PUT", f"{topic}/unload")
    assert backlog() == 16
    third.admin("DELETE", again)
    assert first.admin("GET", f"{topic}/subscriptions") == ["s"]
    with pytest.raises(HTTPError) as refused:
        third.admin("DELETE", f"{topic}/partitions")
    assert refused.value.code == 412  # it has clients
    refused.value.close()
    client.close()
    third.admin("DELETE", f"{topic}/partitions")
    for broker in (third, first, second):
        assert f"{TOPIC}wide" not in broker.admin("GET", "persistent/public/default/partitioned")
        assert not [name for name in broker.admin("GET", "persistent/public/default") if "wide" in name]
    first.admin("PUT", f"{topic}/partitions", 8)
    assert third.admin("GET", f"{topic}/partitioned-stats")["msgInCounter"] == 0


def test_one_id_is_of_one_process(cluster: BrokerCluster) -> None:
    """Of another machine's broker under the same name here: it listens on another address."""
    first = cluster.brokers[-2]
    ports = [url.rpartition(":")[2] for url in (first.broker_url, first.http_url)]
    again = ("--port", ports[0], "--http-port", ports[1])
    with pytest.raises(AssertionError, match="and its session has not ended"):
        cluster.start_broker(*again, "--host", "127.0.0.2", "--advertised-address", "127.0.0.1")
    first.kill()
    successor = cluster.start_broker(*again)
    assert "waiting for the end of its session" not in successor.log_text()
    assert successor.http_url == first.http_url


def test_one_broker_alone_and_several_exclude_each_other(cluster: BrokerCluster, tmp_path: Path) -> None:
    alone = StandaloneProcess(tmp_path, options=("--metadata", cluster.metadata))
    with pytest.raises(AssertionError, match="is served by several brokers"):
        alone.start()

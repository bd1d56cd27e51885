"""WebSockets to topics of other brokers, with `websocket-client` as Pulsar's documents use it: directly, and
through the proxy, and when the owner is killed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket

from support.broker_clusters import BrokerCluster, cluster_or_skip, lookup
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

ANSWER_S = 60.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    yield from cluster_or_skip("etcd", tmp_path_factory)


@pytest.fixture
def cluster(service: BrokerCluster) -> Iterator[BrokerCluster]:
    """Two brokers, which end with the test."""
    service.start_broker()
    service.start_broker()
    service.brokers[-1].admin("POST", "brokers/configuration/loadBalancerSheddingEnabled/false")
    yield service
    service.stop()


def opened(server: StandaloneProcess, path: str, **options: Any) -> websocket.WebSocket:
    url = f"{server.http_url.replace('http', 'ws', 1)}/ws/v2/{path}"
    return websocket.create_connection(url, timeout=ANSWER_S, **options)


def publish(producer: websocket.WebSocket, number: int, **more: Any) -> None:
    producer.send(json.dumps({"payload": base64.b64encode(b"%d" % number).decode(), **more}))
    answer = json.loads(producer.recv())
    assert answer["result"] == "ok", answer


def consume(consumer: websocket.WebSocket) -> int:
    message = json.loads(consumer.recv())
    consumer.send(json.dumps({"messageId": message["messageId"]}))
    return int(base64.b64decode(message["payload"]))


def elsewhere(cluster: BrokerCluster, topic: str) -> StandaloneProcess:
    """A broker that does not serve the topic."""
    owner = cluster.owner_of(topic)
    return next(each for each in cluster.brokers if each.running and each is not owner)


def backlog(cluster: BrokerCluster, topic: str) -> int:
    stats = cluster.owner_of(topic).admin("GET", f"persistent/public/default/{topic}/stats")
    return int(stats["subscriptions"]["s"]["msgBacklog"])


def test_any_broker_serves_a_socket(cluster: BrokerCluster) -> None:
    path = "persistent/public/default/one"
    other = elsewhere(cluster, "one")
    consumer, producer = opened(other, f"consumer/{path}/s"), opened(other, f"producer/{path}")
    for number in range(20):
        publish(producer, number)
    assert [consume(consumer) for _ in range(20)] == list(range(20))
    wait_until(lambda: not backlog(cluster, "one"), ANSWER_S, "acknowledged at the owner")
    reader = opened(other, f"reader/{path}?messageId=earliest")
    large = base64.b64encode(bytes(range(256)) * (4 << 10)).decode()
    producer.send(json.dumps({"payload": large}))
    assert json.loads(producer.recv())["result"] == "ok"
    found = []
    for _ in range(21):
        message = json.loads(reader.recv())
        reader.send(json.dumps({"messageId": message["messageId"]}))
        found.append(message["payload"])
    assert found[-1] == large
    for each in (consumer, producer, reader):
        each.close()


def test_partitions_of_several_brokers(cluster: BrokerCluster) -> None:
    first, second = (each for each in cluster.brokers if each.running)
    first.admin("PUT", "persistent/public/default/parts/partitions", 8)
    owners = {lookup(first, f"parts-partition-{number}")["brokerUrl"] for number in range(8)}
    assert owners == {first.broker_url, second.broker_url}
    path = "persistent/public/default/parts"
    consumer = opened(first, f"consumer/{path}/s?subscriptionType=Shared")
    producer = opened(second, f"producer/{path}?messageRoutingMode=RoundRobinPartition")
    for number in range(40):
        publish(producer, number)
    assert sorted(consume(consumer) for _ in range(40)) == list(range(40))
    consumer.close()
    producer.close()


def test_a_socket_stays_when_the_owner_is_killed(cluster: BrokerCluster) -> None:
    path = "persistent/public/default/killed"
    owner, other = cluster.owner_of("killed"), elsewhere(cluster, "killed")
    consumer, producer = opened(other, f"consumer/{path}/s"), opened(other, f"producer/{path}")
    for number in range(10):
        publish(producer, number)
    assert [consume(consumer) for _ in range(10)] == list(range(10))
    owner.kill()
    for number in range(10, 20):
        publish(producer, number)
    # What was acknowledged shortly before the kill may come again.
    found = [consume(consumer)]
    while found[-1] != 19:
        found.append(consume(consumer))
    firsts = [number for number in dict.fromkeys(found) if number >= 10]
    assert firsts == list(range(10, 20))
    consumer.close()
    producer.close()


def test_a_socket_through_the_proxy(cluster: BrokerCluster, tmp_path: Path) -> None:
    with StandaloneProcess(
        tmp_path / "proxy", role="proxy", options=("--metadata", cluster.metadata)
    ) as proxy:
        # Each handshake goes to another broker.
        for number in range(4):
            topic = f"proxied-{number}"
            path = f"persistent/public/default/{topic}"
            consumer, producer = opened(proxy, f"consumer/{path}/s"), opened(proxy, f"producer/{path}")
            for count in range(5):
                publish(producer, count)
            assert [consume(consumer) for _ in range(5)] == list(range(5))
            consumer.close()
            producer.close()
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            opened(proxy, "consumer/persistent/public/default/t")
        assert refused.value.status_code == 404
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            opened(proxy, f"producer/{path}", origin="http://elsewhere.example")
        assert refused.value.status_code == 403

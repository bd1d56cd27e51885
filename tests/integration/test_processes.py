"""`magnetar broker --processes 3` with the official client, which knows one port only."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pulsar
import pytest

from support.broker_clusters import BrokerCluster, cluster_or_skip, lookup
from support.official import QUIET, receive_all
from support.sharing_processes import (
    TOPIC,
    Load,
    check_all_there,
    connected,
    is_there,
    process_of,
    processes,
)
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

TOPICS = [f"topic-{number}" for number in range(40)]


ETCD = pytest.param("etcd", marks=pytest.mark.nightly("ZooKeeper, and etcd where a process is killed"))


@pytest.fixture(scope="module", params=["zk", ETCD])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster]:
    yield from cluster_or_skip(request.param, tmp_path_factory)


@pytest.fixture
def broker(service: BrokerCluster) -> Iterator[StandaloneProcess]:
    """Three processes, which end with the test."""
    yield service.start_broker("--processes", "3")
    service.stop()
    # They notice the end of their supervisor, and drain while there is a metadata service.
    files = [each.folder / "ready.json" for each in service.brokers]
    told = [json.loads(each.read_text()).get("processes", []) for each in files if each.exists()]
    pids = [process["pid"] for processes in told for process in processes]
    wait_until(lambda: not any(is_there(pid) for pid in pids), 60, "all processes have ended")


def peers_of(pid: int) -> set[int]:
    """Local ports of the established connections of a process to which clients of this machine came."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:
            # It was closed between the two calls.
            continue
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        parts = line.split()
        if parts[3] == "01" and f"socket:[{parts[9]}]" in inodes:
            found.add(int(parts[1].rpartition(":")[2], 16))
    return found


def test_one_port_leads_to_the_topics_of_all_processes(broker: StandaloneProcess) -> None:
    with connected(broker) as client:
        consumers = {topic: client.subscribe(TOPIC + topic, "all") for topic in TOPICS}
        load = Load(client, TOPICS)
        for _ in range(5):
            load.send()
        load.settle()
        for consumer in consumers.values():
            assert receive_all(consumer, 5) == [b"%d" % number for number in range(5)]
        shared = int(broker.broker_url.rpartition(":")[2])
        served = Counter(process_of(broker, topic)["number"] for topic in TOPICS)
        assert len(served) == 3
        for each in processes(broker):
            ports = peers_of(each["pid"])
            # Every process has connections of the shared port, and none came to its own one.
            assert shared in ports
            assert int(each["broker_url"].rpartition(":")[2]) not in ports
    brokers = sorted(each["http_url"].removeprefix("http://") for each in processes(broker))
    assert broker.admin("GET", "brokers") == brokers
    for each in processes(broker):
        with urlopen(f"{each['http_url']}/admin/v2/brokers/health", timeout=60) as answer:
            assert answer.read() == b"ok"
    # A call about a topic leads to its process, whichever process gets it.
    for topic in TOPICS[:8]:
        assert broker.admin("GET", f"persistent/public/default/{topic}/stats")["msgInCounter"] == 5


@pytest.mark.every_run
def test_a_killed_process_is_replaced_and_clients_go_on(broker: StandaloneProcess) -> None:
    topics = [f"killed-{number}" for number in range(12)]
    with connected(broker) as client:
        load = Load(client, topics)
        for _ in range(50):
            load.send()
        load.settle()
        load.send()
        killed = process_of(broker, topics[0])
        os.kill(killed["pid"], signal.SIGKILL)
        for _ in range(50):
            load.send()
        load.settle()

        def replaced() -> bool:
            now = next(each for each in processes(broker) if each["number"] == killed["number"])
            same = now["broker_url"] == killed["broker_url"] and now["http_url"] == killed["http_url"]
            return bool(now["pid"] != killed["pid"] and same)

        wait_until(replaced, 60, "the process is replaced")
        assert "has ended with signal 9" in broker.log_text()
        load.send()
        load.settle()
        check_all_there(client, topics, load.sent)


def test_processes_are_restarted_in_turn_without_an_error(broker: StandaloneProcess) -> None:
    topics = [f"rolled-{number}" for number in range(12)]
    before = {each["number"]: each["pid"] for each in processes(broker)}
    with connected(broker) as client:
        load = Load(client, topics)
        broker.send_signal(signal.SIGUSR2)

        def all_new() -> bool:
            load.send()
            now = {each["number"]: each["pid"] for each in processes(broker)}
            return now.keys() == before.keys() and not set(now.values()) & set(before.values())

        wait_until(all_new, 120, "all processes are new")
        load.settle()
        check_all_there(client, topics, load.sent)


def test_stopping_drains_all_and_another_broker_goes_on(
    service: BrokerCluster, broker: StandaloneProcess
) -> None:
    """Of several machines, one stops: nothing that its processes had is lost, and no error is seen."""
    other = service.start_broker("--processes", "2")
    topics = [f"drained-{number}" for number in range(12)]
    pids = [each["pid"] for each in processes(broker)]
    client = pulsar.Client(service.service_url, operation_timeout_seconds=60, logger=QUIET)
    load = Load(client, topics)
    for _ in range(20):
        load.send()
    assert broker.stop() == 0
    for _ in range(20):
        load.send()
    load.settle()
    check_all_there(client, topics, load.sent)
    client.close()
    assert not any(map(is_there, pids))
    urls = {each["broker_url"] for each in processes(other)}
    assert {lookup(other, topic)["brokerUrl"] for topic in topics} <= urls


def test_no_process_outlives_the_supervisor(broker: StandaloneProcess) -> None:
    pids = [each["pid"] for each in processes(broker)]
    broker.kill()
    wait_until(lambda: not any(map(is_there, pids)), 60, "the processes have ended too")


def test_a_wrong_setting_ends_the_start_with_its_reason(
    service: BrokerCluster, broker: StandaloneProcess
) -> None:
    port = broker.broker_url.rpartition(":")[2]
    with pytest.raises(AssertionError, match=f"port {port} on 127.0.0.1 is in use"):
        service.start_broker("--processes", "2", "--port", port)

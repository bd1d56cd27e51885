"""History of topics on a cluster: three brokers, two bookies, etcd or ZooKeeper, and a bucket or a folder.

Owners are killed in the middle of an upload and paused in the middle of a merge. The next owner goes on,
every message is there once for the official client and for Spark, and no object is left over.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pulsar
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("obstore")

from fakes.s3_server import FakeS3
from magnetar.tiered.context import parse_object_name
from support.broker_clusters import BrokerCluster, cluster_or_skip
from support.files import files_in
from support.history_topics import DEADLINE_S, KEEP_EVERYTHING, HistoryTopic, Seen
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

MERGES = {"MAGNETAR_OFFLOAD_MERGE_INTERVAL_SECONDS": "1"}


ZK = pytest.param("zk", marks=pytest.mark.nightly("etcd, and ZooKeeper where the owner is killed"))


@pytest.fixture(scope="module", params=["etcd", ZK])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster]:
    yield from cluster_or_skip(request.param, tmp_path_factory)


@pytest.fixture
def cluster(service: BrokerCluster) -> Iterator[BrokerCluster]:
    yield service
    service.stop()


@pytest.fixture(scope="module")
def bucket(service: BrokerCluster) -> Iterator[FakeS3]:
    """One for all tests on a cluster: its metadata knows the address, and the bucket belongs to it."""
    with pytest.MonkeyPatch.context() as patch, FakeS3() as server:
        patch.setenv("AWS_ACCESS_KEY_ID", "x")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        yield server


@pytest.fixture
def s3(bucket: FakeS3) -> FakeS3:
    bucket.fault = lambda method, key: None
    return bucket


class Held:
    """The first upload of a kind of object, which does not end before it is let go on."""

    def __init__(self, s3: FakeS3, matches: Callable[[str], bool]) -> None:
        self.came = threading.Event()
        self.going = threading.Event()
        self._matches = matches
        self._first = threading.Lock()
        s3.fault = self._fault

    def _fault(self, method: str, key: str) -> None:
        if method in ("PUT", "POST") and self._matches(key) and self._first.acquire(blocking=False):
            self.came.set()
            self.going.wait(DEADLINE_S)

    def wait(self) -> None:
        assert self.came.wait(DEADLINE_S), "the upload has begun"


class SharedHistory(HistoryTopic):
    """A topic of a cluster, as its present owner serves it."""

    def __init__(self, cluster: BrokerCluster, topic: str, store: Callable[[], set[str]]) -> None:
        self.cluster = cluster
        self.name = topic
        self._store = store
        super().__init__(cluster.owner_of(topic), f"persistent://public/default/{topic}")

    def follow(self) -> StandaloneProcess:
        """Goes on with the owner that there is now."""
        running = [each for each in self.cluster.brokers if each.running]
        self.process = owner_among(self.cluster, running[0], self.name, running)
        return self.process

    def read_by_all(self) -> list[list[Seen]]:
        """All messages, by a client of each broker."""
        found, owner = [], self.process
        for broker in self.cluster.brokers:
            if broker.running:
                self.process = broker
                found.append(self.read())
        self.process = owner
        return found

    def attempts_named(self) -> set[str]:
        stats = self.process.admin("GET", f"{self.path}/internalStats")
        segments = [
            segment["name"]
            for ledger in stats["ledgers"]
            for segment in ledger.get("offloadedTo", {}).get("segments", ())
        ]
        return {str(parsed[2]) for name in segments if (parsed := parse_object_name(name)) is not None}

    def attempts_stored(self) -> set[str]:
        """Attempts of this topic that have objects."""
        parsed = [parse_object_name(name) for name in self._store()]
        return {str(each[2]) for each in parsed if each is not None and each[0].endswith(f"/{self.name}")}

    def nothing_is_left_over(self) -> None:
        wait_until(
            lambda: self.attempts_named() == self.attempts_stored(), DEADLINE_S, "what is stored is named"
        )


def start(cluster: BrokerCluster, url: str, **settings: str) -> None:
    for _ in range(3):
        cluster.start_broker(environment={**KEEP_EVERYTHING, "MAGNETAR_OFFLOAD_URL": url, **settings})
    # Bundles stay where they are on a busy machine too.
    cluster.brokers[-1].admin("POST", "brokers/configuration/loadBalancerSheddingEnabled/false")


def by_spark(process: StandaloneProcess, topic: str) -> list[bytes]:
    """What Spark's source reads through this broker, sorted."""
    pytest.importorskip("pyspark")
    from support.spark_queries import batch_rows

    return sorted(row["value"] for row in batch_rows(process, topic))


def as_spark(seen: list[Seen]) -> list[bytes]:
    return sorted(each.data for each in seen)


def keys_by(broker: StandaloneProcess, topic: str, key: str) -> list[str]:
    """What `magnetar topics get --all` finds through this broker, the newest first."""
    done = subprocess.run(
        [sys.executable, "-m", "magnetar", "topics", "get", topic, "--key", key, "--all", "-o", "json"],
        capture_output=True,
        text=True,
        env={**os.environ, "MAGNETAR_URL": broker.broker_url, "MAGNETAR_ADMIN_URL": broker.http_url},
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["value"] for line in done.stdout.splitlines()]


def numbers(seen: list[Seen]) -> list[str]:
    return sorted(dict(each.properties)["number"] for each in seen)


@pytest.mark.every_run
def test_the_owner_is_killed_in_the_middle_of_an_upload(cluster: BrokerCluster, s3: FakeS3) -> None:
    """Its upload even ends after it: the next owner copies anew, and nothing is left of the first attempt."""
    start(cluster, s3.url)
    history = SharedHistory(cluster, "killed", lambda: set(s3.objects))
    for _ in range(3):
        history.fill_ledger(40)
    before = history.read()
    assert numbers(before) == sorted(str(number) for number in range(120))
    held = Held(s3, lambda key: key.endswith(".parquet"))
    first = history.process
    history.request()
    held.wait()
    first.kill()
    held.going.set()
    assert history.follow() is not first
    assert history.read() == before, "the ledgers are still on the bookies"
    history.offload()
    history.delete_local()
    assert history.read_by_all() == [before, before]
    history.nothing_is_left_over()
    others = [each for each in cluster.brokers if each.running]
    assert [by_spark(each, history.topic) for each in others] == [as_spark(before)] * 2
    # Any broker looks keys up: the call goes to the owner.
    for each in others:
        found = keys_by(each, history.topic, "key 3")
        assert found == [one.data.decode() for one in reversed(before) if one.key == "key 3"]
    # The topic goes with its objects.
    history.process.admin("DELETE", f"{history.path}?force=true")
    assert not history.attempts_stored()


def test_the_owner_is_paused_in_the_middle_of_a_merge(cluster: BrokerCluster, s3: FakeS3) -> None:
    """It goes on when another broker has merged the same files: what it made is not used, and goes."""
    start(cluster, s3.url, **MERGES)
    history = SharedHistory(cluster, "paused", lambda: set(s3.objects))
    for _ in range(8):
        history.fill_ledger(20)
    before = history.read()
    held = Held(s3, lambda key: "-to-" in key)
    history.offload()
    history.process.admin("PUT", "namespaces/public/default/offloadDeletionLagMs", 0)
    held.wait()
    first = history.process
    first.send_signal(signal.SIGSTOP)
    try:
        others = [each for each in cluster.brokers if each.running and each is not first]

        history.process = owner_among(cluster, others[0], history.name, others)
        assert history.read() == before
        wait_until(lambda: len(history.attempts_named()) < 8, DEADLINE_S, "merged by the next owner")
    finally:
        held.going.set()
        first.send_signal(signal.SIGCONT)
    history.nothing_is_left_over()
    assert history.read_by_all() == [before] * 3
    assert by_spark(first, history.topic) == as_spark(before)
    # The former owner serves what it gets anew.
    history.process.kill()
    history.follow()
    assert history.read() == before
    history.nothing_is_left_over()


def test_a_shared_folder_and_bundles_that_move(cluster: BrokerCluster, tmp_path: Path) -> None:
    """Each owner in turn adds to the history; no broker is refused the store."""
    folder = tmp_path / "store"
    start(cluster, folder.as_uri())
    name = "moved"
    store = lambda: {path.relative_to(folder).as_posix() for path in files_in(folder, "*.parquet*")}  # noqa: E731
    history = SharedHistory(cluster, name, store)
    owners = set()
    for _ in range(3):
        owner = history.follow()
        history.fill_ledger(20)
        history.offload()
        owners.add(owner.http_url)
        target = next(
            each
            for each in cluster.brokers
            if each.running and each is not owner and (each.http_url not in owners or len(owners) == 3)
        )
        move(owner, name, target)
        wait_until(lambda there=target: cluster.owner_of(name) is there, DEADLINE_S, "moved")  # type: ignore[misc]
    history.follow()
    assert numbers(history.read()) == sorted(str(number) for number in range(60))
    history.delete_local()
    assert numbers(history.read()) == sorted(str(number) for number in range(60))
    history.nothing_is_left_over()
    for each in cluster.brokers:
        assert not each.running or use_of(each, folder.as_uri())["role"] == "owner"


def test_a_broker_without_the_store_does_not_make_another_one(cluster: BrokerCluster, tmp_path: Path) -> None:
    """A folder that is not mounted on its machine: it copies nothing, and the others go on."""
    folder = tmp_path / "mounted"
    url = folder.as_uri()
    first = cluster.start_broker(environment={**KEEP_EVERYTHING, "MAGNETAR_OFFLOAD_URL": url})
    history = SharedHistory(cluster, "mounted", lambda: set())
    history.fill_ledger(20)
    history.offload()
    aside = folder.rename(tmp_path / "aside")
    second = cluster.start_broker(environment={**KEEP_EVERYTHING, "MAGNETAR_OFFLOAD_URL": url})
    wait_until(lambda: use_of(second, url)["role"] == "read-only", DEADLINE_S, "refused")
    assert not folder.exists()
    assert "not mounted" in use_of(second, url)["reason"]
    aside.rename(folder)
    wait_until(lambda: use_of(second, url)["role"] == "owner", DEADLINE_S, "found")
    history.fill_ledger(20)
    history.offload()
    assert use_of(first, url)["role"] == "owner"


def test_lost_entries_are_given_up_for_all_brokers(cluster: BrokerCluster, tmp_path: Path) -> None:
    """The only copy of a ledger is gone: consumers wait in front of it, then at whichever broker go on."""
    folder = tmp_path / "lossy"
    start(cluster, folder.as_uri())
    history = SharedHistory(cluster, "lossy", lambda: set())
    for _ in range(2):
        history.fill_ledger(20)
    history.offload()
    history.delete_local()
    hurt, whole = history.ledgers()
    (file,) = files_in(folder, f"{hurt['ledgerId']:019d}-*.parquet")
    file.unlink()
    # What was read before is in no cache any more.
    history.process.admin("PUT", f"{history.path}/unload")
    words = ["storage", "accept-loss", str(hurt["ledgerId"]), "0", "--to", str(hurt["entries"] - 1)]
    with contextlib.closing(history.client()) as client:
        earliest = pulsar.InitialPosition.Earliest
        consumer = client.subscribe(history.topic, "s", initial_position=earliest)

        def explained() -> bool:
            with contextlib.suppress(OSError):
                subscriptions = history.process.admin("GET", f"{history.path}/stats")["subscriptions"]
                return " ".join(words) in (subscriptions["s"].get("whyIdle") or "")
            return False

        wait_until(explained, DEADLINE_S, "why nothing comes is said, and what gives it up")
        where = ["--yes", "--metadata", cluster.metadata]
        subprocess.run([sys.executable, "-m", "magnetar", *words, *where], check=True, timeout=DEADLINE_S)
        found = consumer.receive(timeout_millis=int(1_000 * DEADLINE_S)).message_id()
        assert (found.ledger_id(), found.entry_id()) == (whole["ledgerId"], 0)
    # The next owner knows it from the metadata.
    history.process.kill()
    history.follow()
    assert history.read()[0].ledger_id == whole["ledgerId"]


def owner_among(
    cluster: BrokerCluster, asked: StandaloneProcess, topic: str, those: list[StandaloneProcess]
) -> StandaloneProcess:
    """Waits until one of these brokers is the owner: of one that is gone the records may be there yet."""
    found: list[StandaloneProcess] = []

    def is_there() -> bool:
        with contextlib.suppress(HTTPError, StopIteration):
            found.append(cluster.owner_of_by(asked, topic))
        return bool(found) and found[-1] in those

    wait_until(is_there, DEADLINE_S, "one of them is the owner")
    return found[-1]


def use_of(broker: StandaloneProcess, url: str) -> dict[str, str]:
    """What a broker says of its use of this store."""
    found = [each for each in broker.admin("GET", "offload/stores") if each["url"] == url]
    return found[0] if found else {"role": "", "reason": ""}


def move(owner: StandaloneProcess, topic: str, target: StandaloneProcess) -> None:
    found: dict[str, Any] = owner.admin("GET", f"persistent/public/default/{topic}/stats")
    assert found is not None
    ranges = owner.admin("GET", "namespaces/public/default/bundles")["boundaries"]
    bundle = bundle_of(topic, ranges)
    destination = target.http_url.removeprefix("http://")
    owner.admin("PUT", f"namespaces/public/default/{bundle}/unload?destinationBroker={destination}")


def bundle_of(topic: str, boundaries: list[str]) -> str:
    from zlib import crc32

    place = crc32(f"persistent://public/default/{topic}".encode())
    for lower, upper in itertools.pairwise(boundaries):
        if int(lower, 16) <= place < int(upper, 16) or upper == boundaries[-1]:
            return f"{lower}_{upper}"
    raise AssertionError(boundaries)

"""`./dev chaos standalone`: official clients publish and consume while an operator is busy and the broker is
killed.

    ./dev chaos standalone [--seconds N] [--seed S] [--bookies N] [--lake]

Topics of six kinds: plain with delays, in batches, partitioned, chunked up to several MiB, by key and
compacted, deduplicated. Each has a producer and two subscriptions that acknowledge and give back. Meanwhile
topics and namespaces are unloaded, bundles split, ledgers offloaded, topics compacted, policies changed,
subscriptions made, moved and deleted, statistics asked, all of it chosen by the seed; and every few seconds
the broker is killed or stopped, and started again. Backups are made, also while it is killed. With `--lake`
every ledger goes into history within seconds, files are merged and tables looked after; without backups.

In the end every acknowledged message must be in its topic, once where it is deduplicated, and must have come
to both subscriptions; and in folders that are made of some backups must be what was acknowledged before each.
With `--lake` each topic's table must agree with the list of its files and with every file.
One more topic is deleted and emptied all the while, under clients that stay: what is published to it when
the operator has ended must come to them.
Which errors clients meet on the way is told, and does not count.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import socket
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pulsar
import websocket

from chaos.standalone_backups import ChaosBackups

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.standalone import (  # type: ignore[import-not-found]  # needs the path above
    StandaloneProcess,
)

PARTITIONS: Final = 3
NAMESPACE: Final = "/admin/v2/namespaces/public/default"
TOPICS: Final = "/admin/v2/persistent/public/default"
SIZES: Final = (10, 100_000, 6_000_000)
SUBSCRIPTIONS: Final = {"shared": pulsar.ConsumerType.Shared, "failover": pulsar.ConsumerType.Failover}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "plain": {"batching_enabled": False},
    "batch": {"batching_enabled": True, "batching_max_publish_delay_ms": 5},
    "part": {"batching_enabled": True},
    "big": {"batching_enabled": False, "chunking_enabled": True},
    "keyed": {"batching_enabled": True, "batching_type": pulsar.BatchingType.KeyBased},
    "dedup": {"batching_enabled": True, "producer_name": "the-one"},
    "doomed": {"batching_enabled": True},
}
"""Topics, and how each is published to."""
DOOMED: Final = "doomed"
"""The topic that is deleted and emptied."""
DOOMED_LAST: Final = 200
"""Messages that it gets when that is over, and which count."""
KILLS_S: Final = (5.0, 25.0)
DRAIN_S: Final = 120.0
CALL_S: Final = 30.0
BUNDLES_MAX: Final = 16
LAKE: Final = """
offload_threshold_bytes = 0
offload_deletion_lag_ms = 2000
offload_interval_seconds = 1
offload_merge_interval_seconds = 5
"""
"""Settings of a broker whose messages are in history at once, and there alone after some seconds."""


@dataclass
class Lane:
    """What became of one topic's messages, which are numbered from 1."""

    topic: str
    sent: int = 0
    acknowledged: set[int] = field(default_factory=set)
    came: dict[str, set[int]] = field(default_factory=lambda: {name: set() for name in SUBSCRIPTIONS})

    @property
    def parts(self) -> list[str]:
        """The topic, or its partitions."""
        if self.topic != "part":
            return [self.topic]
        return [f"part-partition-{number}" for number in range(PARTITIONS)]

    def missing(self, passed_over: Set[int] = frozenset()) -> dict[str, list[int]]:
        """Acknowledged messages that did not come, by subscription; but for those that clients pass over."""
        return {name: sorted(self.acknowledged - came - passed_over) for name, came in self.came.items()}


def number_of(message: Any) -> int:
    """Messages begin with their number and a dot."""
    return int(bytes(message.data()[:20]).partition(b".")[0])


class Run:
    """One broker, its clients and its operator."""

    def __init__(self, folder: Path, seed: int, options: tuple[str, ...]) -> None:
        self._chance = random.Random(seed)
        ports = [str(free_port()) for _ in range(2)]
        self.broker = StandaloneProcess(
            folder, options=("--port", ports[0], "--http-port", ports[1], *options)
        )
        self.broker.start()
        self._options = options
        self._backups = ChaosBackups(folder)
        self.lanes = [Lane(topic) for topic in KINDS]
        self.operations: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._over, self._drained = threading.Event(), threading.Event()
        self.call("POST", f"{NAMESPACE}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
        self.call("PUT", f"{TOPICS}/part/partitions", PARTITIONS)
        self.call("PUT", f"{TOPICS}/dedup")
        self.call("POST", f"{TOPICS}/dedup/deduplicationEnabled", body=True)
        self._client = pulsar.Client(
            self.broker.broker_url,
            operation_timeout_seconds=30,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )

    def call(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Status and body of an admin call; 0 where there was none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.broker.http_url + path,
            method=method,
            data=data,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=CALL_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError as error:
            return 0, str(error).encode()

    # -- clients -----------------------------------------------------------------------------------

    def publish(self, lane: Lane) -> None:
        """Publishes until the run is over."""
        chance, producer = random.Random(lane.topic), None
        while not self._over.is_set():
            try:
                producer = producer or self._client.create_producer(
                    lane.topic,
                    send_timeout_millis=120_000,
                    block_if_queue_full=True,
                    max_pending_messages=200,
                    **KINDS[lane.topic],
                )
                number = lane.sent = lane.sent + 1
                body, more = b"%d." % number, dict[str, Any]()
                if lane.topic == "big":
                    body += bytes(chance.choice(SIZES) if number % 5 == 0 else 1_000)
                if lane.topic == "keyed":
                    more["partition_key"] = str(number)
                if lane.topic == "plain" and number % 7 == 0:
                    more["deliver_after"] = timedelta(milliseconds=chance.randrange(1, 3_000))
                producer.send_async(body, self._noting(lane, number), **more)
                # The pace: more than this, and the consumers of two cores do not come after it.
                time.sleep(0.05 if lane.topic == "big" or number % 50 == 0 else 0.002)
            except pulsar.PulsarException as error:
                self.errors[f"publishing: {error}"] += 1
                producer = None
                # The broker is away: what ends that is its start, which the next try sees.
                time.sleep(0.2)
        if producer is not None:
            producer.flush()
        if lane.topic == DOOMED:
            self._publish_last(lane, producer)

    def _publish_last(self, lane: Lane, producer: Any) -> None:
        """To the topic that is not deleted any more."""
        end_s = time.monotonic() + DRAIN_S
        while len(lane.acknowledged) < DOOMED_LAST and time.monotonic() < end_s:
            try:
                producer = producer or self._client.create_producer(lane.topic, **KINDS[lane.topic])
                lane.sent += 1
                producer.send(b"%d." % lane.sent)
                lane.acknowledged.add(lane.sent)
            except pulsar.PulsarException as error:
                self.errors[f"publishing at last: {error}"] += 1
                producer = None

    def _noting(self, lane: Lane, number: int) -> Callable[[Any, Any], None]:
        def note(result: Any, _: Any) -> None:
            if result == pulsar.Result.Ok:
                if lane.topic != DOOMED:
                    lane.acknowledged.add(number)
            else:
                self.errors[f"publishing: {result}"] += 1

        return note

    def consume(self, lane: Lane, name: str) -> None:
        """Receives until everything has come; gives some messages back."""
        chance, consumer = random.Random(lane.topic + name), None
        while not self._drained.is_set():
            try:
                consumer = consumer or self._client.subscribe(
                    lane.topic,
                    name,
                    SUBSCRIPTIONS[name],
                    initial_position=pulsar.InitialPosition.Earliest,
                    negative_ack_redelivery_delay_ms=200,
                    receiver_queue_size=200,
                )
                message = consumer.receive(1_000)
                lane.came[name].add(number_of(message))
                # Given back, the client asks for the last of a message's chunks only.
                if lane.topic != "big" and chance.random() < 0.05 and not self._over.is_set():
                    consumer.negative_acknowledge(message)
                else:
                    consumer.acknowledge(message)
            except pulsar.Timeout:
                continue
            except pulsar.PulsarException as error:
                self.errors[f"consuming: {error}"] += 1
                # As above: the next try sees whether the broker is back.
                time.sleep(0.2)

    # -- the operator ------------------------------------------------------------------------------

    def operate(self) -> None:
        """Does one thing."""
        lane = self._chance.choice(self.lanes)
        topic, other = f"{TOPICS}/{self._chance.choice(lane.parts)}", f"other{self._chance.randrange(4)}"
        subscription = f"{topic}/subscription/{other}"
        rate = {"dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
        past_ms = int(time.time() * 1_000) - self._chance.randrange(60_000)
        todo: dict[str, Callable[[], tuple[int, bytes]]] = {
            "unload": lambda: self.call("PUT", f"{topic}/unload"),
            "unload all": lambda: self.call("PUT", f"{NAMESPACE}/unload"),
            "statistics": lambda: self.call("GET", f"{topic}/stats?getPreciseBacklog=true"),
            "metrics": lambda: self.call("GET", "/metrics"),
            "offload": lambda: self._offload(topic),
            "compact": lambda: self.call("PUT", f"{topic}/compaction"),
            "split": self._split,
            "limit": lambda: self.call(
                "POST", f"{topic}/maxUnackedMessagesOnConsumer", self._chance.choice((100, 1_000, 50_000))
            ),
            "throttle": lambda: self.call(
                "POST",
                f"{topic}/dispatchRate",
                {"dispatchThrottlingRateInMsg": self._chance.choice((-1, 2_000)), **rate},
            ),
            "subscribe": lambda: self.call("PUT", subscription),
            "unsubscribe": lambda: self.call("DELETE", subscription),
            "seek": lambda: self.call("POST", f"{subscription}/resetcursor/{past_ms}"),
            "expire": lambda: self.call("POST", f"{subscription}/expireMessages/1"),
            "peek": lambda: self.call("GET", f"{topic}/subscription/shared/position/1"),
            "delete": lambda: self.call("DELETE", f"{TOPICS}/{DOOMED}?force=true"),
            "truncate": lambda: self.call("DELETE", f"{TOPICS}/{DOOMED}/truncate"),
            "drop": lambda: self.call("DELETE", f"{TOPICS}/{DOOMED}/subscription/shared?force=true"),
            "unload it": lambda: self.call("PUT", f"{TOPICS}/{DOOMED}/unload"),
        }
        if "--config" not in self._options:
            # A backup has history by reference: files that merges have replaced are gone in seconds here.
            todo["back up"] = self._back_up
        else:
            todo |= {
                "merge": lambda: self.call("POST", f"{topic}/lake/merge"),
                "look after a table": lambda: self.call(
                    "POST", f"{TOPICS}/{lane.topic}/lake/maintain?keepSeconds=1&keepSnapshots=2"
                ),
            }
        what = self._chance.choice(list(todo))
        status, _ = todo[what]()
        self.operations[f"{what} {status}"] += 1

    def _back_up(self) -> tuple[int, bytes]:
        acknowledged = {lane.topic: lane.acknowledged for lane in self.lanes}
        return 0, self._backups.begin(self.broker.http_url, acknowledged).encode()

    def _offload(self, topic: str) -> tuple[int, bytes]:
        status, text = self.call("GET", f"{topic}/internalStats")
        if status != 200:
            return status, text
        ledger_id = json.loads(text)["ledgers"][-1]["ledgerId"]
        return self.call("PUT", f"{topic}/offload", {"ledgerId": ledger_id, "entryId": 0})

    def _split(self) -> tuple[int, bytes]:
        status, text = self.call("GET", f"{NAMESPACE}/bundles")
        bounds = json.loads(text)["boundaries"] if status == 200 else []
        if not 2 <= len(bounds) <= BUNDLES_MAX:
            return status, text
        at = self._chance.randrange(len(bounds) - 1)
        return self.call("PUT", f"{NAMESPACE}/{bounds[at]}_{bounds[at + 1]}/split?unload=true")

    def restart(self) -> None:
        """Kills the broker, or stops it, and starts it again."""
        if self._chance.random() < 0.8:
            self.broker.kill()
        else:
            self.broker.stop()
        self.broker.start()
        self.operations["restart"] += 1

    # -- the whole ---------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Runs all clients and the operator for `seconds`, and then waits until all messages have arrived."""
        producers = [threading.Thread(target=self.publish, args=(lane,), daemon=True) for lane in self.lanes]
        consumers = [
            threading.Thread(target=self.consume, args=(lane, name), daemon=True)
            for lane in self.lanes
            for name in SUBSCRIPTIONS
        ]
        for thread in (*producers, *consumers):
            thread.start()
        end_s = time.monotonic() + seconds
        next_s = time.monotonic() + self._chance.uniform(*KILLS_S)
        while time.monotonic() < end_s:
            self.operate()
            # Chance, so that operations meet each other's work at different moments of it.
            time.sleep(self._chance.uniform(0, 0.3))
            if time.monotonic() > next_s:
                self.restart()
                next_s = time.monotonic() + self._chance.uniform(*KILLS_S)
        self._over.set()
        for thread in producers:
            thread.join(DRAIN_S)
        for part in [part for lane in self.lanes for part in lane.parts]:
            self.call("DELETE", f"{TOPICS}/{part}/dispatchRate")
        end_s = time.monotonic() + DRAIN_S
        while any(any(lane.missing().values()) for lane in self.lanes) and time.monotonic() < end_s:
            time.sleep(0.5)  # between two looks at the condition
        self._drained.set()
        for thread in consumers:
            thread.join(DRAIN_S)

    def faults(self) -> list[str]:
        """What is wrong with the messages of all topics."""
        wrong = []
        for lane in self.lanes:
            stored = self._stored(self._client, lane)
            passed_over: set[int] = set()
            if lane.topic == "big":
                passed_over = lane.acknowledged - set(stored)
                stored += Counter(self._put_together(lane) & passed_over)
                print(f"big: the client passed over {len(passed_over)}, of which a piece came twice")
            lost = sorted(lane.acknowledged - set(stored))
            repeated = sum(stored.values()) - len(stored)
            print(f"{lane.topic:6} {len(lane.acknowledged):7} acknowledged, {repeated} twice", flush=True)
            if lane.topic == DOOMED and len(lane.acknowledged) < DOOMED_LAST:
                wrong.append(f"{lane.topic}: takes no messages any more")
            if lost:
                wrong.append(f"{lane.topic}: {len(lost)} are lost, from {lost[0]} on")
            if lane.topic == "dedup" and repeated:
                wrong.append(f"{lane.topic}: {repeated} are there twice")
            for name, missing in lane.missing(passed_over).items():
                if missing:
                    wrong.append(f"{lane.topic}: {len(missing)} did not come to {name}, from {missing[0]} on")
        lanes = {lane.topic: lane for lane in self.lanes}
        wrong += self._backups.faults(
            self._chance, self._options, lambda client, topic: set(self._stored(client, lanes[topic]))
        )
        if "--config" in self._options:
            wrong += [
                f"{lane.topic}: its table: {fault}"
                for lane in self.lanes
                if lane.topic != DOOMED
                for fault in self._table(lane)
            ]
        return wrong

    def _table(self, lane: Lane) -> list[str]:
        """What differs between a topic's table, its lists and its files."""
        path = f"{TOPICS}/{lane.topic}/lake/verify"
        end_s, text = time.monotonic() + DRAIN_S, b""
        while time.monotonic() < end_s:
            self.call("POST", path)
            status, text = self.call("GET", path)
            while status == 200 and json.loads(text)["status"] == "RUNNING" and time.monotonic() < end_s:
                time.sleep(0.2)  # between two looks at the condition
                status, text = self.call("GET", path)
            said = json.loads(text) if status == 200 else {}
            if said.get("status") == "SUCCESS" and not said["result"]["problems"]:
                print(f"{lane.topic:6} {said['result']['files']} files in its table", flush=True)
                return []
            # A table follows its list: what is under way is done at a later look.
            time.sleep(1)
        return [text.decode()[:500]]

    def _stored(self, client: pulsar.Client, lane: Lane) -> Counter[int]:
        found: Counter[int] = Counter()
        for part in lane.parts:
            reader = client.create_reader(f"persistent://public/default/{part}", pulsar.MessageId.earliest)
            while reader.has_message_available():
                found[number_of(reader.read_next(60_000))] += 1
            reader.close()
        return found

    def _put_together(self, lane: Lane) -> set[int]:
        """The numbers of a topic's messages, as the broker puts them together for WebSockets.

        The C++ client drops a chunked message of which it meets a piece twice. A producer sends one again for
        which it has no receipt, as after a kill.
        """
        url = self.broker.http_url.replace("http://", "ws://")
        path = f"/ws/v2/reader/persistent/public/default/{lane.topic}?messageId=earliest"
        reader, found = (
            websocket.create_connection(url + path, timeout=CALL_S, skip_utf8_validation=True),
            set[int](),
        )
        while lane.acknowledged - found:
            try:
                message = json.loads(reader.recv())
            except websocket.WebSocketTimeoutException:
                break
            found.add(int(b64decode(message["payload"][:28]).partition(b".")[0]))
            reader.send(json.dumps({"messageId": message["messageId"]}))
        reader.close()
        return found

    def close(self) -> None:
        """Ends the clients and the broker."""
        self._client.close()
        self.broker.stop()


def free_port() -> int:
    """A port that was free a moment ago: it must be known before the first start, and stay."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    """Runs what the arguments say; 1 when something acknowledged is not there."""
    parser = argparse.ArgumentParser(prog="./dev chaos standalone")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--bookies", type=int, default=0, help="beside the broker; 0: its own store")
    parser.add_argument("--lake", action="store_true", help="everything goes into history and tables at once")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="magnetar-chaos-"))
    print(f"seed {chosen.seed}, in {folder}", flush=True)
    options: tuple[str, ...] = ("--bookies", str(chosen.bookies)) if chosen.bookies else ()
    if chosen.lake:
        settings = folder / "lake.toml"
        settings.write_text(LAKE)
        options += ("--config", str(settings))
    run = Run(folder, chosen.seed, options)
    run.run(chosen.seconds)
    wrong = run.faults()
    print(", ".join(f"{count} × {what}" for what, count in sorted(run.operations.items())))
    if run.errors:
        print("clients were told:", ", ".join(f"{count} × {what}" for what, count in run.errors.items()))
    run.close()
    if wrong:
        print("\n".join(wrong))
        return 1
    shutil.rmtree(folder)
    print(f"nothing lost, seed {chosen.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What functions cost: messages a second on a core, added latency, start, and a thousand that do nothing.

    python -m bench functions                    all of it, about three minutes
    python -m bench functions plain latency      some of it: plain, batch, async, latency, start, idle
    python -m bench functions --idle 200         fewer idle functions

A standalone is started with its data in a temporary folder. Throughput: a topic is filled with messages of
100 bytes in entries of a thousand, then a function is started that publishes each of them to another topic,
at least once. The rate is that of wall time between a tenth and nine tenths of the messages, with broker and
function on one machine. Its CPU is that of the function's process alone.
"""

from __future__ import annotations

import argparse
import http.client
import json
import select
import statistics
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench import machine, proc
from bench.broker import Broker, Cpus, magnetar_command, started
from bench.meter import Meter
from bench.publisher import Publisher
from bench.pulsar_driver import PulsarDriver
from bench.throughput import publish_all
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.consumer import EntryConsumer
from magnetar.client.producer import Producer
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry, entry_layout

PAYLOAD_BYTES: Final = 100
PER_ENTRY: Final = 1_000
DEADLINE_S: Final = 120.0
RATE: Final = 1_000
LATENCY_S: Final = 10.0
STARTS: Final = 10
IDLE_WATCHED_S: Final = 20.0

CODE: Final = """
import asyncio

def plain(input: bytes):
    return input

def batch(batch: list[bytes]):
    return batch

async def later(input: bytes):
    await asyncio.sleep(0.010)
    return input
"""

GOALS: Final = {
    "plain": "250,000",
    "batch": "650,000",
    "async": "20,000",
}
_FUNCTIONS: Final = {"plain": "plain", "batch": "batch", "async": "later"}
_MESSAGES: Final = {"plain": 2_000_000, "batch": 4_000_000, "async": 150_000}


class Functions:
    """The functions of a running standalone, over its admin API."""

    def __init__(self, broker: Broker, code: str = CODE) -> None:
        self._code = code
        self._at = urllib.parse.urlsplit(broker.http_url)
        self._http = http.client.HTTPConnection(self._at.hostname or "", self._at.port, timeout=60)

    def create(self, name: str, function: str, topic: str, output: str = "", **config: object) -> None:
        """Creates a function of the code."""
        given = {
            "className": f"benchcode.{function}",
            "inputs": [topic],
            "py": "benchcode.py",
            "subscriptionPosition": "Earliest",
            **({"output": output} if output else {}),
            **config,
        }
        border = "bench-border"
        parts = (
            ('name="functionConfig"', json.dumps(given)),
            ('name="data"; filename="benchcode.py"', self._code),
        )
        body = "".join(
            f"--{border}\r\nContent-Disposition: form-data; {head}\r\n\r\n{text}\r\n" for head, text in parts
        )
        headers = {"Content-Type": f"multipart/form-data; boundary={border}"}
        self.call("POST", name, f"{body}--{border}--\r\n".encode(), headers)

    def call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """One call on a function. Raises RuntimeError for a refusal."""
        self._http.request(method, f"/admin/v3/functions/public/default/{path}", body, dict(headers or {}))
        answer = self._http.getresponse()
        told = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {told.decode(errors='replace')}")
        return told

    def status(self, name: str) -> dict[str, object]:
        """What the first instance is doing."""
        found: dict[str, object] = json.loads(self.call("GET", f"{name}/0/status"))
        return found

    def processed(self, name: str) -> int:
        """Messages that it has processed."""
        return int(str(self.status(name)["numSuccessfullyProcessed"]))

    def number(self, name: str, key: str) -> int:
        """A counter of its state."""
        return int(json.loads(self.call("GET", f"{name}/state/{key}"))["numberValue"])

    def delete(self, name: str) -> None:
        """Deletes a function."""
        self.call("DELETE", name)


def wait_until(condition: Callable[[], bool], what: str, every_s: float = 0.05) -> None:
    """Looks again and again, as nothing tells a change of the broker's; raises TimeoutError."""
    until_s = time.perf_counter() + DEADLINE_S
    while not condition():
        if time.perf_counter() > until_s:
            raise TimeoutError(f"{what} took more than {DEADLINE_S:.0f} s")
        time.sleep(every_s)


def instances(pid: int) -> list[int]:
    """Processes of functions below a standalone."""
    return [each.pid for each in proc.tree(pid, proc.read_all()) if name_of(each.pid).startswith("fn ")]


def name_of(pid: int) -> str:
    """The name that a process has given itself; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # It has ended meanwhile.
        return ""


def fill(broker: Broker, topic: str, messages: int) -> None:
    """Messages of a topic that a function is to read."""
    lane = PulsarDriver(broker.service_url).lane(
        f"persistent://public/default/{topic}", payload_bytes=PAYLOAD_BYTES, messages_per_entry=PER_ENTRY
    )
    publish_all([Publisher(lane, entries_max=messages // PER_ENTRY)], Meter(None))


def throughput(broker: Broker, kind: str, messages: int) -> str:
    """The line of one kind of function."""
    functions, topic, name = Functions(broker), f"bench-{kind}", f"bench-{kind}"
    assert broker.pid is not None
    # The subscription holds the messages from the first one on.
    functions.create(name, _FUNCTIONS[kind], topic, f"{topic}-out")
    wait_until(lambda: bool(functions.status(name)["running"]), "the start of a function")
    functions.call("POST", f"{name}/stop")
    wait_until(lambda: not instances(broker.pid or 0), "the stop of a function")
    fill(broker, topic, messages)
    functions.call("POST", f"{name}/start")
    seen: list[tuple[float, int, float, float]] = []

    def looked() -> bool:
        pids = instances(broker.pid or 0)
        if not pids:
            return False
        done = functions.processed(name)
        cpu_s = proc.usage(pids[0]).cpu_s
        seen.append((time.perf_counter(), done, cpu_s, proc.usage(broker.pid or 0).cpu_s))
        return done >= messages

    wait_until(looked, f"{messages:,} messages", 0.1)
    functions.delete(name)
    first = next(each for each in seen if each[1] > messages // 10)
    last = next((each for each in seen if each[1] > messages * 9 // 10), seen[-1])
    count = last[1] - first[1]
    if not count:
        return f"{kind:8} all of {messages:,} messages within two looks: give it more"
    rate, cpu_us = count / (last[0] - first[0]), (last[2] - first[2]) / count * 1e6
    all_us = (last[3] - first[3]) / count * 1e6
    per_core = 1e6 / cpu_us if cpu_us else 0.0
    return (
        f"{kind:8} {rate:>10,.0f} msg/s  {cpu_us:6.2f} us of CPU in the function ({per_core:,.0f} a core),"
        f" {all_us:5.2f} with the broker; asked {GOALS[kind]}"
    )


def latency(broker: Broker) -> list[str]:
    """What a function adds to the time from a producer to a consumer at 1,000 messages a second."""
    functions = Functions(broker)
    functions.create("bench-latency", "plain", "bench-to", "bench-from")
    wait_until(lambda: bool(functions.status("bench-latency")["running"]), "the start of a function")
    client = Client(broker.service_url, admin_url=broker.http_url)
    lines, found = [], {}
    for name, source, target in (
        ("without", "bench-direct", "bench-direct"),
        ("with", "bench-to", "bench-from"),
    ):
        found[name] = through(client, source, target)
        p50, p99 = (percentile(found[name], part) for part in (0.5, 0.99))
        lines.append(f"latency  {name:8} a function: p50 {p50:6.2f} ms, p99 {p99:6.2f} ms")
    added = [percentile(found["with"], part) - percentile(found["without"], part) for part in (0.5, 0.99)]
    lines.append(f"latency  added: p50 {added[0]:.2f} ms, p99 {added[1]:.2f} ms; asked 1 and 3")
    functions.delete("bench-latency")
    client.close()
    return lines


def through(client: Client, source: str, target: str) -> list[float]:
    """Milliseconds of each message from the moment when it was due to its arrival."""
    count = int(RATE * LATENCY_S)
    took: list[float] = []
    with (
        Producer(client, TopicName.parse(source)) as producer,
        EntryConsumer(client, TopicName.parse(target), "bench", create_topic=True) as consumer,
    ):
        consumer.ask(2 * count + 2_000)
        warm = RATE // 2
        begin_s = time.perf_counter() + 0.1
        sent = 0
        until_s = begin_s + (count + warm) / RATE + 10
        while len(took) < count + warm and time.perf_counter() < until_s:
            due = min(count + warm, int((time.perf_counter() - begin_s) * RATE) + 1)
            while sent < due:
                metadata = pb.MessageMetadata(
                    producer_name=producer.name, sequence_id=sent, publish_time=int(time.time() * 1000)
                )
                producer.send(sent, build_entry(metadata, b"%d" % sent + b" " * PAYLOAD_BYTES))
                sent += 1
            producer.advance()
            next_s = begin_s + sent / RATE - time.perf_counter() if sent < count + warm else 0.05
            if select.select([consumer.fileno()], [], [], max(0.0, next_s))[0]:
                now_s = time.perf_counter()
                for entry in consumer.read(0).entries:
                    took += [(now_s - begin_s - number / RATE) * 1e3 for number in numbers_of(entry)]
    return took[warm:]


def numbers_of(entry: bytes) -> list[int]:
    """The numbers that the messages of an entry begin with."""
    from magnetar.wire.payload import is_batch, parse_metadata, split_batch

    _, metadata_at, payload_at = entry_layout(entry)
    metadata, payload = parse_metadata(entry[metadata_at:payload_at]), entry[payload_at:]
    if not is_batch(metadata):
        return [int(payload.split()[0])]
    return [int(bytes(view).split()[0]) for _, view in split_batch(payload, metadata.num_messages_in_batch)]


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which this part of all is."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def start(broker: Broker) -> str:
    """How long an instance takes from the call that starts it until it reads."""
    functions = Functions(broker)
    functions.create("bench-start", "plain", "bench-start-in", "bench-start-out")
    wait_until(lambda: bool(functions.status("bench-start")["running"]), "the start of a function")
    took = []
    for _ in range(STARTS):
        functions.call("POST", "bench-start/stop")
        wait_until(lambda: not instances(broker.pid or 0), "the stop of a function", 0.01)
        began_s = time.perf_counter()
        functions.call("POST", "bench-start/start")
        wait_until(lambda: bool(functions.status("bench-start")["running"]), "a start", 0.005)
        took.append(time.perf_counter() - began_s)
    functions.delete("bench-start")
    return f"start    {statistics.median(took):.3f} s, the longest of {STARTS} {max(took):.3f} s; asked 0.3"


def memory_mb(pid: int) -> float:
    """Memory of a process and all below it: pages that several share count once."""
    total = 0
    for each in proc.tree(pid, proc.read_all()):
        try:
            text = Path(f"/proc/{each.pid}/smaps_rollup").read_text()
        except OSError:  # It has ended meanwhile.
            continue
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1024


def idle(broker: Broker, count: int) -> list[str]:
    """What functions cost that have nothing to do."""
    functions, pid = Functions(broker), broker.pid or 0
    before_mb = memory_mb(pid)
    began_s = time.perf_counter()
    for number in range(count):
        functions.create(
            f"bench-idle-{number}", "plain", f"bench-idle-in-{number}", f"bench-idle-out-{number}"
        )
    last = f"bench-idle-{count - 1}"
    wait_until(lambda: bool(functions.status(last)["running"]), "the start of the functions", 0.5)
    took_s = time.perf_counter() - began_s
    time.sleep(5.0)  # what a start leaves to do is not idleness
    used_s = proc.usage(pid).cpu_s
    time.sleep(IDLE_WATCHED_S)  # the time that is measured
    share = (proc.usage(pid).cpu_s - used_s) / IDLE_WATCHED_S
    total_mb = memory_mb(pid)
    each_mb = (total_mb - before_mb) / count
    memory = f"{total_mb:,.0f} MiB in all, {each_mb:.2f} MiB each; asked 1,500 for 1,000"
    return [
        f"idle     {count:,} functions, created in {took_s:.0f} s: {memory}",
        f"idle     {share:.1%} of a core; asked 5 %",
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench functions", description="What do functions cost?")
    kinds = [*GOALS, "latency", "start", "idle"]
    parser.add_argument("what", nargs="*", help=f"some of {', '.join(kinds)}; all when none is given")
    parser.add_argument("--idle", type=int, default=1_000, help="number of idle functions (1,000)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the messages (1.0)")
    given = parser.parse_args(words)
    if unknown := [each for each in given.what if each not in kinds]:
        parser.error(f"{unknown[0]} is none of {', '.join(kinds)}")
    wanted = given.what or kinds
    with tempfile.TemporaryDirectory(prefix="bench-functions-") as scratch:
        folder = Path(scratch)
        print(" · ".join(str(value) for value in machine.describe(folder).values()), flush=True)
        for kind in wanted:
            (folder / kind).mkdir()
            with started(magnetar_command(), folder / kind, Cpus(None, None)) as broker:
                if kind in GOALS:
                    lines = [throughput(broker, kind, int(_MESSAGES[kind] * given.scale))]
                elif kind == "latency":
                    lines = latency(broker)
                else:
                    lines = [start(broker)] if kind == "start" else idle(broker, given.idle)
            print("\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

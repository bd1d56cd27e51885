"""How long clients wait when the broker that serves their topic is killed. A program of its own:

    python -m bench.failover --metadata zk://127.0.0.1:2181/ledgers --kills 20

Starts two bookies and two brokers (`magnetar broker`) on the metadata service, publishes with the official
Python client, kills the owner of the topic again and again, and starts another broker in its place. A figure
is the time from the kill to the first acknowledgement after it. At the end the topic is read: what was
acknowledged must be there, and first copies must be in order. With `--add-to FILE`, many kills can be done
in several runs; a wait is in the file at once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final
from urllib.request import urlopen

_START_S: Final = 60.0
_TOPIC: Final = "persistent://public/default/failover"


class _Member:
    """A process of the cluster."""

    def __init__(self, folder: Path, name: str, *command: str) -> None:
        self._ready = folder / f"{name}.json"
        with (folder / f"{name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "magnetar", *command, "--ready-file", str(self._ready)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "MAGNETAR_METADATA_SESSION_TIMEOUT_SECONDS": "30"},
            )
        deadline = time.monotonic() + _START_S
        while not self._ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
                raise SystemExit(f"{name} did not start:\n{said[-2000:]}")
            time.sleep(0.05)  # the file is the only sign; the deadline bounds the wait
        self.urls: dict[str, str] = json.loads(self._ready.read_text(encoding="utf-8"))

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def end(self, number: signal.Signals) -> None:
        """Sends a signal and waits for the end."""
        self._process.send_signal(number)
        self._process.wait(_START_S)


def _bookie(folder: Path, metadata: str, number: int) -> _Member:
    data = ("--data", str(folder / f"bookie{number}"), "--port", "0", "--disk-usage-threshold", "0.99")
    return _Member(folder, f"bookie{number}", "bookie", "--metadata", metadata, "--initialize", *data)


def _broker(folder: Path, metadata: str, number: int) -> _Member:
    ports = ("--port", "0", "--http-port", "0")
    return _Member(folder, f"broker{number}", "broker", "--metadata", metadata, *ports)


def _owner(brokers: list[_Member]) -> _Member:
    url = f"{brokers[0].urls['http_url']}/lookup/v2/topic/persistent/public/default/failover"
    with urlopen(url, timeout=_START_S) as answer:
        served = json.load(answer)["brokerUrl"]
    return next(each for each in brokers if each.urls["broker_url"] == served)


def _measure(brokers: list[_Member], folder: Path, options: argparse.Namespace) -> list[float]:
    """Seconds of each kill. The client knows the addresses of the brokers that run when it begins, so each
    kill has a client of its own."""
    import pulsar

    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    waits: list[float] = []
    sent = 0
    for kill in range(options.kills):
        hosts = ",".join(each.urls["broker_url"].removeprefix("pulsar://") for each in brokers)
        client = pulsar.Client(f"pulsar://{hosts}", logger=quiet, operation_timeout_seconds=60)
        producer = client.create_producer(_TOPIC, send_timeout_millis=0, batching_enabled=False)
        for _ in range(50):
            producer.send(b"%d" % sent)
            sent += 1
        owner = _owner(brokers)
        began = time.monotonic()
        owner.end(signal.SIGKILL)
        producer.send(b"%d" % sent)
        waits.append(time.monotonic() - began)
        if options.add_to is not None:
            with options.add_to.open("a", encoding="utf-8") as file:
                file.write(f"{waits[-1]:.4f}\n")
        sent += 1
        client.close()
        brokers.remove(owner)
        brokers.append(_broker(folder, options.metadata, kill + 2))
    hosts = brokers[0].urls["broker_url"]
    client = pulsar.Client(hosts, logger=quiet)
    reader = client.create_reader(_TOPIC, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(10_000).data()))
    client.close()
    firsts = list(dict.fromkeys(found))
    assert firsts == list(range(sent)), "messages are missing, or in another order"
    print(f"{sent} messages acknowledged, all found in order; {len(found) - sent} stored twice")
    return waits


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__.splitlines()[0])
    parser.add_argument("--metadata", required=True, help="URL of a metadata service without a cluster")
    parser.add_argument("--kills", type=int, default=20, help="how many brokers are killed (20)")
    parser.add_argument(
        "--add-to", type=Path, help="file of waits in seconds, one a line: those of former runs count too"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="magnetar-failover-") as name:
        folder = Path(name)
        members: list[_Member] = []
        try:
            members.extend(_bookie(folder, options.metadata, number) for number in range(2))
            brokers: list[_Member] = []
            try:
                # One by one: those that started are ended when another one does not.
                brokers.extend(_broker(folder, options.metadata, number) for number in range(2))
                waits = _measure(brokers, folder, options)
            finally:
                for broker in brokers:
                    broker.end(signal.SIGKILL)
        finally:
            for member in members:
                member.end(signal.SIGKILL)
    if options.add_to is not None:
        waits = [float(line) for line in options.add_to.read_text(encoding="utf-8").splitlines()]
    ordered = sorted(waits)
    print(
        f"{len(waits)} kills of the owner: publishing again after"
        f" p50 {statistics.median(ordered):.2f} s, p99 {ordered[math.ceil(0.99 * len(ordered)) - 1]:.2f} s,"
        f" longest {ordered[-1]:.2f} s"
    )


if __name__ == "__main__":
    main()

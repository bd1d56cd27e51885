"""How long clients wait when the broker that serves their topic is killed. A program of its own:

    python -m bench.failover --metadata zk://127.0.0.1:2181/ledgers --kills 20

Starts two bookies and two brokers (`magnetar broker`) on the metadata service, publishes with the official
Python client or, with `--client java`, the Java client, kills the owner of the topic again and again, and
starts another broker in its place. A figure is the time from the kill to the first acknowledgement after it.
At the end the topic is read: what was acknowledged must be there, and first copies must be in order. With
`--add-to FILE`, many kills can be done in several runs; a wait is in the file at once.

With `--planned`, the bundle of the topic is moved to the other broker in place of each kill, while messages
are published one after the other. A figure is then the longest time that one of them took.
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
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from urllib.request import Request, urlopen

_START_S: Final = 60.0
_SENDS_AFTER: Final = 20
"""Messages that are published after a move, while the client may still be on its way."""
_PROGRAMS: Final = Path("~/.cache/magnetar-bench").expanduser()
"""Keeps the Java client and the program that uses it."""
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


class _Sender(Protocol):
    """A producer of the topic."""

    def send(self, number: int) -> None:
        """Returns with the acknowledgement."""

    def close(self) -> None:
        """Ends the client."""


class _PythonSender:
    """With the official Python client."""

    def __init__(self, url: str) -> None:
        import pulsar

        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        self._client = pulsar.Client(url, logger=quiet, operation_timeout_seconds=60)
        self._producer = self._client.create_producer(_TOPIC, send_timeout_millis=0, batching_enabled=False)

    def send(self, number: int) -> None:
        self._producer.send(b"%d" % number)

    def close(self) -> None:
        self._client.close()


class _JavaSender:
    """With the official Java client, in a process of its own."""

    def __init__(self, url: str, command: list[str]) -> None:
        self._process = subprocess.Popen(
            [*command, url, _TOPIC],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._read("ready")

    def send(self, number: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        self._read(str(number))

    def _read(self, wanted: str) -> None:
        assert self._process.stdout is not None
        found = self._process.stdout.readline().strip()
        assert found == wanted, f"the Java client said {found!r} in place of {wanted!r}"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_START_S)


def _measure(
    brokers: list[_Member], folder: Path, options: argparse.Namespace, client: Callable[[str], _Sender]
) -> list[float]:
    """Seconds of each kill. The client knows the addresses of the brokers that run when it begins, so each
    kill has a client of its own."""
    waits: list[float] = []
    sent = 0
    for kill in range(options.kills):
        hosts = ",".join(each.urls["broker_url"].removeprefix("pulsar://") for each in brokers)
        sender = client(f"pulsar://{hosts}")
        for _ in range(50):
            sender.send(sent)
            sent += 1
        owner = _owner(brokers)
        began = time.monotonic()
        owner.end(signal.SIGKILL)
        sender.send(sent)
        waits.append(time.monotonic() - began)
        if options.add_to is not None:
            with options.add_to.open("a", encoding="utf-8") as file:
                file.write(f"{waits[-1]:.4f}\n")
        sent += 1
        sender.close()
        brokers.remove(owner)
        brokers.append(_broker(folder, options.metadata, kill + 2))
    _check_topic(brokers[0].urls["broker_url"], sent)
    return waits


def _measure_moves(
    brokers: list[_Member], options: argparse.Namespace, client: Callable[[str], _Sender]
) -> list[float]:
    """Seconds of the longest send at each move."""
    hosts = ",".join(each.urls["broker_url"].removeprefix("pulsar://") for each in brokers)
    sender, sent, longest = client(f"pulsar://{hosts}"), 0, list[float]()
    sender.send(sent)
    place = f"{brokers[0].urls['http_url']}/lookup/v2/topic/persistent/public/default/failover/bundle"
    with urlopen(place, timeout=_START_S) as answer:
        bundle = answer.read().decode().strip().strip('"')
    for _ in range(options.kills):
        owner = _owner(brokers)
        other = next(each for each in brokers if each is not owner)
        to = other.urls["http_url"].removeprefix("http://")
        path = f"/admin/v2/namespaces/public/default/{bundle}/unload?destinationBroker={to}"
        moving = threading.Thread(
            target=urlopen, args=(Request(owner.urls["http_url"] + path, method="PUT"),), daemon=True
        )
        moving.start()
        took, after = 0.0, 0
        while after < _SENDS_AFTER:
            after += not moving.is_alive()
            began = time.monotonic()
            sent += 1
            sender.send(sent)
            took = max(took, time.monotonic() - began)
        longest.append(took)
        assert _owner(brokers) is other, "the bundle has not moved"
    sender.close()
    _check_topic(brokers[0].urls["broker_url"], sent + 1)
    return longest


def _check_topic(url: str, sent: int) -> None:
    """Everything that was acknowledged is there, in order."""
    import pulsar

    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(_TOPIC, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(10_000).data()))
    client.close()
    firsts = list(dict.fromkeys(found))
    assert firsts == list(range(sent)), "messages are missing, or in another order"
    print(f"{sent} messages acknowledged, all found in order; {len(found) - sent} stored twice")


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__.splitlines()[0])
    parser.add_argument("--metadata", required=True, help="URL of a metadata service without a cluster")
    parser.add_argument("--client", choices=("python", "java"), default="python", help="which one (python)")
    parser.add_argument("--kills", type=int, default=20, help="how many brokers are killed, or moves (20)")
    parser.add_argument("--planned", action="store_true", help="move the topic in place of each kill")
    parser.add_argument(
        "--add-to", type=Path, help="file of waits in seconds, one a line: those of former runs count too"
    )
    options = parser.parse_args()
    client: Callable[[str], _Sender] = _PythonSender
    if options.client == "java":
        from bench.clients.programs import java

        client = partial(_JavaSender, command=java(_PROGRAMS, "Sender"))
    with tempfile.TemporaryDirectory(prefix="magnetar-failover-") as name:
        folder = Path(name)
        members: list[_Member] = []
        try:
            members.extend(_bookie(folder, options.metadata, number) for number in range(2))
            brokers: list[_Member] = []
            try:
                # One by one: those that started are ended when another one does not.
                brokers.extend(_broker(folder, options.metadata, number) for number in range(2))
                if options.planned:
                    waits = _measure_moves(brokers, options, client)
                else:
                    waits = _measure(brokers, folder, options, client)
            finally:
                for broker in brokers:
                    broker.end(signal.SIGKILL)
        finally:
            for member in members:
                member.end(signal.SIGKILL)
    if options.add_to is not None:
        waits = [float(line) for line in options.add_to.read_text(encoding="utf-8").splitlines()]
    ordered = sorted(waits)
    what = "moves: the longest send took" if options.planned else "kills of the owner: publishing again after"
    print(
        f"{len(waits)} {what}"
        f" p50 {statistics.median(ordered):.3f} s, p99 {ordered[math.ceil(0.99 * len(ordered)) - 1]:.3f} s,"
        f" longest {ordered[-1]:.3f} s"
    )


if __name__ == "__main__":
    main()

"""Tenants that take what they can get: each a process of its own, `python -m bench.neighbours KIND …`.

It prints `ready` when it is at work, then a line with what it has done so far twice a second, until it is
ended. A broker may refuse or slow down whatever it wants; a neighbour tries on.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import resource
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import Final, NoReturn
from urllib.parse import urlsplit

from bench import frames as f
from bench.connection import Connection
from bench.group import SHARED, Group, Member, Sender, send_frame
from bench.publisher import Publisher
from bench.pulsar_driver import PulsarDriver
from bench.scan import BrokerAnswerError
from bench.throughput import Loop

TENANT: Final = "noisy"
NAMESPACE: Final = f"{TENANT}/n"
SAYS_S: Final = 0.5
PRODUCERS: Final = 8
CONNECTIONS: Final = 10_000
OPENERS: Final = 16
GROUP: Final = 20
"""Consumers that never acknowledge."""
BLOCK: Final = 200


class Count:
    """What was done, said twice a second."""

    def __init__(self) -> None:
        self.done = 0
        self.refused = 0
        self._said_s = 0.0

    def say(self) -> None:
        """Prints the count if it is time; the first time it says that the work has begun."""
        now_s = time.perf_counter()
        if not self._said_s:
            print("ready", flush=True)
        if now_s - self._said_s >= SAYS_S:
            self._said_s = now_s
            print(json.dumps({"done": self.done, "refused": self.refused}), flush=True)

    def say_for_ever(self) -> NoReturn:
        """Reports in the main thread while other threads work; the parent process ends this one."""
        while True:
            self.say()
            # The pace of the reports, which no work waits for.
            time.sleep(SAYS_S / 5)


def flood(service_url: str, http_url: str, count: Count, payload_bytes: int) -> None:
    """Publishes as fast as receipts allow, on several connections."""
    del http_url
    driver = PulsarDriver(service_url)
    publishers = []
    for number in range(PRODUCERS):
        topic = f"persistent://{NAMESPACE}/flood-{number}"
        publishers.append(Publisher(driver.lane(topic, payload_bytes=payload_bytes, messages_per_entry=1)))
    loop = Loop(publishers)
    while True:
        loop.turn()
        count.done = sum(publisher.entries_acknowledged for publisher in publishers)
        count.say()


def connections(service_url: str, http_url: str, count: Count) -> None:
    """Opens 10,000 connections with a consumer on each, keeps them, and tries again where it is refused."""
    del http_url
    numbers = itertools.count()
    poll = select.epoll()
    open_now: dict[int, socket.socket] = {}

    def connect(number: int) -> socket.socket | None:
        try:
            connection = Connection(service_url, deadline_s=10)
        except (OSError, BrokerAnswerError):
            return None
        try:
            topic = f"persistent://{NAMESPACE}/crowd-{number % 100}"
            connection.subscribe(topic, f"s-{number}", durable=False, earliest=False)
        except (OSError, BrokerAnswerError):
            connection.socket.close()
            return None
        connection.hand_over()
        return connection.socket

    with ThreadPoolExecutor(OPENERS) as pool:
        while True:
            wanted = min(500, CONNECTIONS - len(open_now))
            for one in pool.map(connect, itertools.islice(numbers, wanted)):
                if one is None:
                    count.refused += 1
                else:
                    open_now[one.fileno()] = one
                    poll.register(one.fileno(), select.EPOLLIN)
                    count.done += 1
                count.say()
            for fd, _ in poll.poll(0.1):
                try:
                    alive = open_now[fd].recv(65536)
                    open_now[fd].send(f.command_frame(f.PONG, b""))
                except OSError:
                    alive = b""
                if not alive:
                    poll.unregister(fd)
                    open_now.pop(fd).close()
            count.say()


def topics(service_url: str, http_url: str, count: Count) -> None:
    """Makes topics over REST and by producers, one after the other on several connections."""
    parts = urlsplit(http_url)
    numbers = itertools.count()

    def over_rest(_: int) -> None:
        admin = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        while True:
            number = next(numbers)
            partitions = number % 3 == 0
            path = f"/admin/v2/persistent/{NAMESPACE}/made-{number}" + ("/partitions" if partitions else "")
            try:
                admin.request("PUT", path, "4" if partitions else None, {"Content-Type": "application/json"})
                answer = admin.getresponse()
                answer.read()
            except (OSError, HTTPException):
                admin.close()
                count.refused += 1
                continue
            counted(count, good=answer.status < 300)

    def by_producers(_: int) -> None:
        while True:
            with contextlib.suppress(OSError, BrokerAnswerError), Connection(service_url) as connection:
                for producer_id in range(1, 1_000):
                    try:
                        connection.open_producer(
                            f"persistent://{NAMESPACE}/used-{next(numbers)}", producer_id
                        )
                    except BrokerAnswerError:
                        counted(count, good=False)
                    else:
                        counted(count, good=True)

    with ThreadPoolExecutor(2 * 4) as pool:
        for number in range(4):
            pool.submit(over_rest, number)
            pool.submit(by_producers, number)
        count.say_for_ever()


def counted(count: Count, *, good: bool) -> None:
    """One more, done or refused."""
    if good:
        count.done += 1
    else:
        count.refused += 1


def never_acks(service_url: str, http_url: str, count: Count) -> None:
    """Consumers that take everything and acknowledge nothing, leave and come back for it, and a producer."""
    del http_url
    topic = f"persistent://{NAMESPACE}/held"
    sender = Sender(service_url, topic)
    frames = b"".join(send_frame(sender.name, bytes(1_000), sequence_id=i) for i in range(BLOCK))

    def next_block() -> tuple[bytes, int] | None:
        return (frames, BLOCK) if sender.sent - sender.acknowledged < 10 * BLOCK else None

    taken = 0
    while True:
        members = [Member(service_url, topic, "s", SHARED, range(GROUP), 10_000)]
        group = Group(sender, members, ack=False)
        end_s = time.perf_counter() + 2.0
        while time.perf_counter() < end_s:
            group.turn(next_block)
            count.done = taken + group.received
            count.say()
        taken += group.received
        for member in members:
            member.socket.close()


KINDS: Final[dict[str, Callable[[str, str, Count], None]]] = {
    "flood": partial(flood, payload_bytes=1_000),
    "flood-large": partial(flood, payload_bytes=1_000_000),
    "connections": connections,
    "topics": topics,
    "never-acks": never_acks,
}


def said(lines: Iterator[str]) -> dict[str, int]:
    """The last whole line of what a neighbour printed."""
    found: dict[str, int] = {"done": 0, "refused": 0}
    for line in lines:
        with contextlib.suppress(json.JSONDecodeError):
            found = json.loads(line)
    return found


def main() -> int:
    """Works until it is ended."""
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--service-url", required=True)
    parser.add_argument("--http-url", required=True)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    KINDS[options.kind](options.service_url, options.http_url, Count())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""kill -9 of functions: nothing is lost, and with effectively once nothing is there twice."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from magnetar.adminclient import paths
from magnetar.adminclient.admin import Admin
from magnetar.adminclient.form import FormFile
from magnetar.adminclient.target import AdminTarget
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.consumer import EntryConsumer
from magnetar.client.producer import Producer
from magnetar.client.transforming import Message, messages_of
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.one_process("kills")]

DEADLINE_S = 60.0
PER_ENTRY = 10
CODE = b"""
import time

from pulsar import Function

class Count(Function):
    def process(self, input, context):
        time.sleep(0.001)  # so that a kill comes between two messages
        context.incr_counter("calls", 1)
        context.incr_counter("sum", input)
        return input

def doubled(batch: list[int]):
    return [2 * value for value in batch]

async def later(x: int):
    import asyncio
    await asyncio.sleep(0.001 * (x % 7))
    return x

def choosy(x: str):
    if x == "3":
        raise ValueError("not three")
    return x

def stuck(x):
    while True:
        pass
"""


class Functions:
    """Functions of a standalone, and their topics."""

    def __init__(self, process: StandaloneProcess, admin: Admin, client: Client) -> None:
        self._process = process
        self._admin = admin
        self.client = client

    def create(self, name: str, **config: object) -> None:
        given = {
            "className": f"code.{name}",
            "inputs": [f"in-{name}"],
            "output": f"out-{name}",
            "py": "code.py",
            "subscriptionPosition": "Earliest",
            **config,
        }
        form = {"functionConfig": json.dumps(given), "data": FormFile("code.py", CODE)}
        self._admin.send("POST", paths.function(name), form)

    def status(self, name: str) -> dict[str, object]:
        found = self._admin.call("GET", f"{paths.function(name)}/0/status")
        assert isinstance(found, dict)
        return found

    def counter(self, name: str, key: str) -> object:
        try:
            found = self._admin.call("GET", f"{paths.function(name)}/state/{key}")
        except Exception as error:  # noqa: BLE001  # nothing is counted yet
            return str(error)
        assert isinstance(found, dict)
        return found["numberValue"]

    def pids(self) -> list[int]:
        """The processes of instances."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return [
            int(pid) for pid in children if b"instance_program" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    def fill(self, topic: str, values: range) -> None:
        with Producer(self.client, TopicName.parse(topic)) as producer:
            for first in values[::PER_ENTRY]:
                singles = [
                    (pb.SingleMessageMetadata(), b"%d" % value)
                    for value in range(first, min(first + PER_ENTRY, values.stop))
                ]
                metadata = pb.MessageMetadata(
                    producer_name=producer.name,
                    sequence_id=first,
                    publish_time=1,
                    num_messages_in_batch=len(singles),
                )
                producer.send(first, build_entry(metadata, build_batch(singles)), len(singles))
            producer.flush()

    def results(self, topic: str, count: int) -> list[Message]:
        """All messages of a topic once there are `count`, and a moment later, when more would have come."""
        name = TopicName.parse(topic)
        found: list[Message] = []
        with EntryConsumer(self.client, name, "look", create_topic=True) as consumer:
            consumer.ask(1_000_000)
            until_s = time.monotonic() + DEADLINE_S
            while time.monotonic() < until_s and len(found) < count:
                found += messages_of(name, consumer.read(0.5))
            return found + list(messages_of(name, consumer.read(0.5)))


def wait_for(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)


@contextmanager
def functions(folder: Path) -> Iterator[Functions]:
    with (
        StandaloneProcess(folder) as process,
        Admin(AdminTarget(url=process.http_url)) as admin,
        Client(process.broker_url, admin_url=process.http_url) as client,
    ):
        yield Functions(process, admin, client)


def test_kills_lose_and_double_nothing_with_effectively_once(tmp_path: Path) -> None:
    with functions(tmp_path) as run:
        run.create("Count", processingGuarantees="EFFECTIVELY_ONCE")
        for number in range(5):
            run.fill("in-Count", range(200 * number, 200 * (number + 1)))
            reached = 200 * number + 50
            wait_for(lambda: isinstance(done := run.counter("Count", "calls"), int) and done >= reached)  # noqa: B023  # called at once
            for pid in run.pids():
                os.kill(pid, signal.SIGKILL)
        run.fill("in-Count", range(1000, 1200))
        wait_for(lambda: run.counter("Count", "calls") == 1200)
        assert run.counter("Count", "sum") == sum(range(1200))
        found = run.results("out-Count", 1200)
        assert [message.value for message in found] == [b"%d" % value for value in range(1200)]


def test_kills_lose_nothing_at_least_once(tmp_path: Path) -> None:
    with functions(tmp_path) as run:
        for name in ("doubled", "later"):
            run.create(name)
            run.fill(f"in-{name}", range(500))
        wait_for(lambda: len(run.pids()) == 2)
        for pid in run.pids():
            os.kill(pid, signal.SIGKILL)
        for name, factor in (("doubled", 2), ("later", 1)):
            found = {int(message.value) for message in run.results(f"out-{name}", 500)}
            wanted = {factor * value for value in range(500)}
            while found < wanted:
                found |= {int(message.value) for message in run.results(f"out-{name}", 1)}
            assert found == wanted


def test_a_message_that_fails_becomes_a_dead_letter_that_says_why(tmp_path: Path) -> None:
    with functions(tmp_path) as run:
        run.create("choosy", maxMessageRetries=1, deadLetterTopic="dead")
        run.fill("in-choosy", range(6))
        (letter,) = run.results("dead", 1)
        assert letter.value == b"3"
        assert letter.properties["EXCEPTION"] == "ValueError: not three"
        assert letter.properties["ATTEMPTS"] == "2"
        assert 'raise ValueError("not three")' in letter.properties["TRACEBACK"]
        assert [message.value for message in run.results("out-choosy", 5)] == [b"0", b"1", b"2", b"4", b"5"]


def test_a_stuck_function_is_shown_with_its_stack(tmp_path: Path) -> None:
    with functions(tmp_path) as run:
        run.create("stuck")
        run.fill("in-stuck", range(1))
        wait_for(lambda: "in stuck" in str(run.status("stuck")["error"]))
        assert "code.py" in str(run.status("stuck")["error"])

"""Functions that run beside a real standalone, with their topics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from magnetar.adminclient import paths
from magnetar.adminclient.admin import Admin
from magnetar.adminclient.form import Form, FormFile
from magnetar.adminclient.target import AdminTarget
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.consumer import EntryConsumer
from magnetar.client.producer import Producer
from magnetar.client.transforming import Message, messages_of
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry
from support.standalone import StandaloneProcess, wait_until

DEADLINE_S = 60.0
PER_ENTRY = 10


class RunningFunctions:
    """Functions of a standalone, and their topics."""

    def __init__(self, process: StandaloneProcess, admin: Admin, client: Client, code: bytes) -> None:
        self.process = process
        self.admin = admin
        self.client = client
        self._code = code

    def create(self, name: str, **config: object) -> None:
        given = {
            "className": f"code.{name}",
            "inputs": [f"in-{name}"],
            "output": f"out-{name}",
            "py": "code.py",
            "subscriptionPosition": "Earliest",
            **config,
        }
        form: Form = {"functionConfig": json.dumps(given), "data": FormFile("code.py", self._code)}
        self.admin.send("POST", paths.function(name), form)

    def status(self, name: str) -> dict[str, object]:
        found = self.admin.call("GET", f"{paths.function(name)}/0/status")
        assert isinstance(found, dict)
        return found

    def counter(self, name: str, key: str) -> object:
        try:
            found = self.admin.call("GET", f"{paths.function(name)}/state/{key}")
        except Exception as error:  # noqa: BLE001  # nothing is counted yet
            return str(error)
        assert isinstance(found, dict)
        return found["numberValue"]

    def state(self, name: str, key: str) -> object:
        """A text of a function's state."""
        found = self.admin.call("GET", f"{paths.function(name)}/state/{key}")
        assert isinstance(found, dict)
        return found["stringValue"]

    def pids(self) -> list[int]:
        """The processes of instances: copies of one that the standalone has started."""
        return [pid for child in _children(self.process.pid) for pid in _children(child) if _is_instance(pid)]

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

    def fill_with(self, topic: str, values: list[bytes]) -> None:
        """Publishes each value as an entry."""
        with Producer(self.client, TopicName.parse(topic)) as producer:
            for number, value in enumerate(values):
                metadata = pb.MessageMetadata(producer_name=producer.name, sequence_id=number, publish_time=1)
                producer.send(number, build_entry(metadata, value), 1)
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


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # It has ended meanwhile.
        return []


def _is_instance(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("fn ")
    except OSError:  # It has ended meanwhile.
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    wait_until(condition, DEADLINE_S, "what a function was to bring about")


@contextmanager
def running_functions(
    folder: Path, code: bytes, *, options: tuple[str, ...] = ()
) -> Iterator[RunningFunctions]:
    with (
        StandaloneProcess(folder, options=options) as process,
        Admin(AdminTarget(url=process.http_url)) as admin,
        Client(process.broker_url, admin_url=process.http_url) as client,
    ):
        yield RunningFunctions(process, admin, client, code)

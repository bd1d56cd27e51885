"""With authentication a function's code has the rights of its owner: neither more nor for longer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from magnetar.adminclient import paths
from magnetar.adminclient.admin import Admin
from magnetar.adminclient.form import FormFile
from magnetar.adminclient.target import AdminTarget
from magnetar.auth.token import new_token
from magnetar.base.errors import ClientError
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.consumer import EntryConsumer
from magnetar.client.options import ClientOptions
from magnetar.client.producer import Producer
from magnetar.client.transforming import Message, messages_of
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry
from support.running_functions import wait_for
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.one_process("start")]

DEADLINE_S = 60.0
SECRET = b"0123456789abcdef0123456789abcdef"
CODE = b'''
from magnetar.adminclient.admin import Admin
from magnetar.adminclient.target import AdminTarget
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.consumer import EntryConsumer
from magnetar.client.options import ClientOptions
from magnetar.client.producer import Producer


def told(act):
    try:
        act()
    except Exception as error:
        return str(error)
    return "done"


def spy(input: str, context):
    """Tries what the topic's message names, with all that the code can find; and tells its token."""
    facts = context._facts
    admin = Admin(AdminTarget(url=facts.admin_url, token=facts.token))
    topic = TopicName.parse(input)
    stats = f"/admin/v2/persistent/{topic.namespace_name}/{topic.local}/stats"
    mine = {"allowedClusters": ["standalone"]}
    with Client(facts.service_url, ClientOptions(token=facts.token, retry_timeout_s=1.0)) as client:
        return {
            "produce": told(lambda: Producer(client, topic).close()),
            "consume": told(lambda: EntryConsumer(client, topic, "spy", create_topic=True).close()),
            "stats": told(lambda: admin.call("GET", stats)),
            "tenants": told(lambda: admin.call("PUT", "/admin/v2/tenants/mine", mine)),
            "token": facts.token,
        }
'''


def token_of(role: str) -> str:
    return new_token(SECRET, role, now_s=0, lasts_s=None)


def publish(client: Client, topic: str, value: str) -> None:
    with Producer(client, TopicName.parse(topic)) as producer:
        metadata = pb.MessageMetadata(producer_name=producer.name, sequence_id=0, publish_time=1)
        producer.send(0, build_entry(metadata, value.encode()), 1)
        producer.flush()


class Installation:
    """A standalone with two tenants, each with a role that may use its own namespace."""

    def __init__(self, process: StandaloneProcess) -> None:
        self.process = process
        self.root = self.admin("root")
        for tenant, role in (("a", "alice"), ("b", "bob")):
            self.root.call("PUT", paths.tenant(tenant), {"allowedClusters": ["standalone"], "adminRoles": []})
            self.root.call("PUT", paths.namespace(f"{tenant}/x"))
            self.grant(f"{tenant}/x", role, "functions", "produce", "consume")

    def admin(self, role: str) -> Admin:
        return Admin(AdminTarget(url=self.process.http_url, token=token_of(role)))

    def client(self, token: str) -> Client:
        options = ClientOptions(token=token, retry_timeout_s=2.0)
        return Client(self.process.broker_url, options, admin_url=self.process.http_url)

    def grant(self, namespace: str, role: str, *actions: str) -> None:
        self.root.call("POST", f"{paths.namespace(namespace)}/permissions/{role}", list(actions))

    def create(self, role: str, name: str, **config: object) -> str:
        """Creates a function in a/x; its path."""
        path = f"{paths.FUNCTIONS}/a/x/{name}"
        given = {
            "className": "code.spy",
            "inputs": [f"a/x/in-{name}"],
            "output": f"a/x/out-{name}",
            "py": "code.py",
            "subscriptionPosition": "Earliest",
            **config,
        }
        form = {"functionConfig": json.dumps(given), "data": FormFile("code.py", CODE)}
        with self.admin(role) as admin:
            admin.send("POST", path, form)
        return path

    def told(self, name: str, topic: str) -> dict[str, str]:
        """What the code could do with a topic."""
        with self.client(token_of("alice")) as client:
            publish(client, f"a/x/in-{name}", topic)
            (message,) = self.results(client, f"a/x/out-{name}")
        found = json.loads(message.value)
        assert isinstance(found, dict)
        return found

    @staticmethod
    def results(client: Client, topic: str) -> list[Message]:
        """The messages that have come, at least one."""
        name = TopicName.parse(topic)
        found: list[Message] = []
        with EntryConsumer(client, name, "look", create_topic=True) as consumer:
            consumer.ask(1_000)
            until_s = time.monotonic() + DEADLINE_S
            while time.monotonic() < until_s and not found:
                columns = consumer.read(0.5)
                found += messages_of(name, columns)
                consumer.acknowledge([columns.position(row) for row in range(len(columns))])
        return found


@contextmanager
def installation(folder: Path) -> Iterator[Installation]:
    key = folder / "key"
    key.write_bytes(SECRET)
    config = folder / "secure.toml"
    config.write_text(f'authentication = "token"\ntoken_secret_key = "{key}"\nsuperuser_roles = "root"\n')
    with StandaloneProcess(folder, options=("--config", str(config))) as process:
        run = Installation(process)
        with run.root:
            yield run


def test_code_reaches_what_its_owner_reaches_and_nothing_else(tmp_path: Path) -> None:
    with installation(tmp_path) as run:
        run.create("alice", "spy")
        mine = run.told("spy", "a/x/mine")
        assert [mine["produce"], mine["consume"], mine["stats"]] == ["done", "done", "done"]
        theirs = run.told("spy", "b/x/theirs")
        for what in ("produce", "consume", "stats"):
            assert "may not" in theirs[what], what
        assert "may not administer the cluster" in mine["tenants"]


def test_a_token_ends_with_its_process(tmp_path: Path) -> None:
    with installation(tmp_path) as run:
        path = run.create("alice", "spy")
        token = run.told("spy", "a/x/mine")["token"]
        with (
            run.client(token) as client,
            EntryConsumer(client, TopicName.parse("a/x/mine"), "left", create_topic=True) as consumer,
        ):
            run.root.call("DELETE", path)
            wait_for(lambda: _is_closed(consumer))
        with run.client(token) as client, pytest.raises(ClientError, match="has ended"):
            Producer(client, TopicName.parse("a/x/mine"))


def _is_closed(consumer: EntryConsumer) -> bool:
    try:
        consumer.read(0.1)
    except ClientError:
        return True
    return False


def test_rights_that_are_taken_away_end_for_running_code(tmp_path: Path) -> None:
    with installation(tmp_path) as run:
        path = run.create("alice", "spy")
        assert run.told("spy", "a/x/mine")["produce"] == "done"
        run.grant("a/x", "alice", "functions", "consume")
        with run.client(token_of("root")) as client:
            publish(client, "a/x/in-spy", "a/x/mine")

        def refused() -> bool:
            status = run.root.call("GET", f"{path}/0/status")
            assert isinstance(status, dict)
            return "may not produce" in json.dumps(status)

        wait_for(refused)


def test_a_superuser_who_corrects_a_function_gives_its_code_no_rights(tmp_path: Path) -> None:
    with installation(tmp_path) as run:
        path = run.create("alice", "spy")
        run.root.send("PUT", path, {"functionConfig": json.dumps({"userConfig": {"level": "debug"}})})
        assert "may not" in run.told("spy", "b/x/theirs")["produce"]


def test_effectively_once_needs_an_administrator_or_deduplication(tmp_path: Path) -> None:
    with installation(tmp_path) as run:
        path = run.create("alice", "spy", processingGuarantees="EFFECTIVELY_ONCE")
        with run.client(token_of("alice")) as client:
            publish(client, "a/x/in-spy", "a/x/mine")
            said = "EFFECTIVELY_ONCE needs deduplication of persistent://a/x/out-spy"
            wait_for(lambda: said in json.dumps(run.root.call("GET", f"{path}/0/status")))
            run.root.call("POST", f"{paths.namespace('a/x')}/deduplication", body=True)
            assert json.loads(run.results(client, "a/x/out-spy")[0].value)["produce"] == "done"

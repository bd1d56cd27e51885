"""Calls of the admin API against a server that answers as it is told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.admin_server import FakeAdminServer
from magnetar.adminclient import paths
from magnetar.adminclient.admin import Admin
from magnetar.adminclient.errors import AdminRefusedError, AdminTargetError, AdminUnreachableError
from magnetar.adminclient.target import AdminTarget
from magnetar.base.errors import ClientError
from magnetar.base.ids import Position
from magnetar.base.names import InvalidNamespaceNameError, TopicName
from magnetar.client.client import Client
from magnetar.client.options import ClientOptions

pytestmark = pytest.mark.one_process("own")


@pytest.fixture
def server() -> Iterator[FakeAdminServer]:
    with FakeAdminServer() as running:
        yield running


def test_names_are_encoded_in_paths() -> None:
    assert paths.topic("ü ö%+") == "/admin/v2/persistent/public/default/%C3%BC%20%C3%B6%25%2B"
    assert paths.topic("non-persistent://a/b/c?d#e") == "/admin/v2/non-persistent/a/b/c%3Fd%23e"
    assert paths.subscription("t", "a/b") == "/admin/v2/persistent/public/default/t/subscription/a%2Fb"
    assert paths.namespace("a/b") == "/admin/v2/namespaces/a/b"
    assert paths.schema("t") == "/admin/v2/schemas/public/default/t"
    assert paths.lookup("t") == "/lookup/v2/topic/persistent/public/default/t"
    with pytest.raises(InvalidNamespaceNameError):
        paths.namespace("../x/y")


def test_calls_share_a_connection_and_show_the_token(server: FakeAdminServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    server.answers = {"GET /admin/v2/tenants": ["public"], "PUT /admin/v2/tenants/x": None}
    with Admin(AdminTarget(url=server.url, token_file=file)) as admin:
        assert admin.tenants() == ["public"]
        assert admin.call("PUT", paths.tenant("x"), {"adminRoles": []}) is None
        assert "secret" not in repr(admin) + repr(AdminTarget(token="secret"))
    assert [each.headers["authorization"] for each in server.asked] == ["Bearer secret"] * 2
    assert server.asked[1].body == {"adminRoles": []}


def test_a_redirect_keeps_method_and_body(server: FakeAdminServer) -> None:
    with FakeAdminServer() as owner:
        there = f"{owner.url}/admin/v2/tenants/x?authoritative=true"
        server.answers = {"PUT /admin/v2/tenants/x": (307, None, {"Location": there})}
        owner.answers = {"PUT /admin/v2/tenants/x?authoritative=true": None}
        with Admin(AdminTarget(url=server.url)) as admin:
            admin.call("PUT", "/admin/v2/tenants/x", 4)
        assert [(each.method, each.body) for each in owner.asked] == [("PUT", 4)]


def test_a_refusal_says_what_the_broker_said(server: FakeAdminServer) -> None:
    server.answers = {"GET /admin/v2/tenants": (403, {"reason": "role 'a' may not list tenants"}, {})}
    with Admin(AdminTarget(url=server.url)) as admin:
        with pytest.raises(AdminRefusedError, match="role 'a' may not") as refused:
            admin.tenants()
        assert refused.value.status == 403
        with pytest.raises(AdminRefusedError, match="nothing is at") as refused:
            admin.namespaces("x")
        assert refused.value.status == 404


def test_stats_of_a_partitioned_topic_are_those_of_all(server: FakeAdminServer) -> None:
    topic = "/admin/v2/persistent/public/default/t"
    server.answers = {
        f"GET {topic}/partitions": {"partitions": 2},
        f"GET {topic}/partitioned-stats": {"msgInCounter": 3},
    }
    with Admin(AdminTarget(url=server.url)) as admin:
        assert admin.stats("t") == {"msgInCounter": 3}
        with pytest.raises(AdminRefusedError):
            admin.stats("other")


def test_who_does_not_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        admin = Admin(AdminTarget(url=f"http://127.0.0.1:{port}", timeout_s=0.05))
        with pytest.raises(AdminUnreachableError, match=r"no answer within 0\.05 s"):
            admin.tenants()
    with pytest.raises(AdminUnreachableError, match="is the broker running"):
        admin.tenants()


def test_credentials_are_asked_for_with_each_call(server: FakeAdminServer) -> None:
    tokens = iter(("Bearer a", None, "Basic b"))
    server.answers = {"GET /admin/v2/tenants": []}
    with Admin(AdminTarget(url=server.url, authorization=lambda: next(tokens))) as admin:
        for _ in range(3):
            admin.tenants()
    assert [each.headers.get("authorization") for each in server.asked] == ["Bearer a", None, "Basic b"]


def test_positions_and_rules_of_a_topic(server: FakeAdminServer) -> None:
    topic, path = TopicName.parse("t-partition-1"), "GET /admin/v2/persistent/public/default/t"
    server.answers = {
        f"{path}-partition-1/messageid/5": {"ledgerId": 3, "entryId": 4},
        f"{path}-partition-1/getMessageIdByIndex?index=7": (412, {"reason": "no broker metadata"}, {}),
        f"{path}-partition-1/getMessageIdByIndex?index=8": (401, {"reason": "who are you?"}, {}),
        f"{path}/retention?applied=true": {"retentionTimeInMinutes": -1, "retentionSizeInMB": 5},
        f"{path}/messageTTL?applied=true": 60,
    }
    with Admin(AdminTarget(url=server.url)) as admin:
        assert admin.position_by_time(topic, 5) == Position(3, 4)
        assert admin.position_by_index(topic, 7) is None
        with pytest.raises(AdminRefusedError, match="who are you"):
            admin.position_by_index(topic, 8)
        assert admin.removal_rule(topic) == (
            "In public/default retention keeps what all subscriptions are done with without limit,"
            " up to 5 MB, and messages expire after 60 s; deleting the topic removes all."
        )
        assert admin.removal_rule(TopicName.parse("other")) == ""


def test_a_client_calls_as_its_options_say(server: FakeAdminServer) -> None:
    options = ClientOptions(token="secret", request_timeout_s=5)
    found = {"brokerUrl": "pulsar://owner:1234", "brokerUrlTls": ""}
    server.answers = {"GET /lookup/v2/topic/persistent/public/default/t": found}
    with Client(server.url, options) as client:
        assert client.admin.lookup("t", tls=False) == "pulsar://owner:1234"
        assert client.admin.lookup("t", tls=True) == ""
    assert server.asked[0].headers["authorization"] == "Bearer secret"
    with Client("http://127.0.0.1:1") as client, pytest.raises(ClientError, match="is this the admin URL"):
        client.admin.internal_stats("t")


@pytest.mark.parametrize("url", ["ftp://x", "http://", "x:8080", "http://x:0", "http://x:banana"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(AdminTargetError, match="not an HTTP URL"):
        Admin(AdminTarget(url=url))


def test_a_token_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AdminTargetError, match="cannot be read"):
        Admin(AdminTarget(token_file=tmp_path / "absent"))

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
from magnetar.base.names import InvalidNamespaceNameError


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


@pytest.mark.parametrize("url", ["ftp://x", "http://", "x:8080", "http://x:0", "http://x:banana"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(AdminTargetError, match="not an HTTP URL"):
        Admin(AdminTarget(url=url))


def test_a_token_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AdminTargetError, match="cannot be read"):
        Admin(AdminTarget(token_file=tmp_path / "absent"))

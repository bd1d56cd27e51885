"""Commands on all topics that a wildcard names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fakes.admin_server import FakeAdminServer

P = "/admin/v2"
LIST = f"{P}/namespaces/public/default/topics"
FULL = "persistent://public/default/"
FOUND = [f"{FULL}nyc.b-partition-0", f"{FULL}nyc.b-partition-1", f"{FULL}nyc.a"]


@pytest.fixture
def server() -> Iterator[FakeAdminServer]:
    with FakeAdminServer() as server:
        yield server


def listed(server: FakeAdminServer, match: str, found: list[str]) -> None:
    server.answers[f"GET {LIST}?match={match}&mode=PERSISTENT"] = found


def test_every_topic_gets_the_call(magnetar: Callable[..., Any], server: FakeAdminServer) -> None:
    listed(server, "nyc.%2A%2A", FOUND)
    ended = magnetar("topics", "unload", "nyc.**", "--dry-run", "--admin-url", server.url)
    assert ended.code == 0, ended.err
    place = f"{P}/persistent/public/default"
    assert ended.out.splitlines() == [f"PUT {place}/nyc.a/unload", f"PUT {place}/nyc.b/unload"]
    for name in ("nyc.a", "nyc.b"):
        server.answers[f"DELETE {place}/{name}"] = None
        server.answers[f"POST {place}/{name}/retention"] = None
        server.answers[f"GET {place}/{name}/partitions"] = {"partitions": len(name)}
    ended = magnetar("topics", "delete", "nyc.**", "--yes", "--admin-url", server.url)
    assert (ended.code, len(ended.out.splitlines())) == (0, 2), ended.err
    ended = magnetar("topics", "policies", "set", "nyc.**", "retention", "x=1", "--admin-url", server.url)
    assert (ended.code, len(ended.out.splitlines())) == (0, 2), ended.err
    ended = magnetar("topics", "partitions", "nyc.**", "-o", "json", "--admin-url", server.url)
    assert json.loads(ended.out) == {f"{FULL}nyc.a": 5, f"{FULL}nyc.b": 5}


def test_nothing_matches(magnetar: Callable[..., Any], server: FakeAdminServer) -> None:
    listed(server, "sfo.%2A", [])
    ended = magnetar("topics", "unload", "sfo.*", "--admin-url", server.url)
    assert (ended.code, "no topic of public/default matches sfo.*" in ended.err) == (1, True)
    assert len(server.asked) == 1


def test_what_is_created_is_named(magnetar: Callable[..., Any], server: FakeAdminServer) -> None:
    ended = magnetar("topics", "create", "a.*", "--dry-run", "--admin-url", server.url)
    assert ended.out.splitlines() == [f"PUT {P}/persistent/public/default/a.%2A"]
    assert server.asked == []

"""The policies that the command knows are policies of the admin API, written as it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fakes.admin_server import FakeAdminServer
from magnetar.admin.routes import all_routes
from magnetar.cli.namespaces import policies
from magnetar.observability.metrics import Registry

ROUTES = {(method, path) for method, path, *_ in all_routes(Registry())}
PREFIXES = {
    "namespace": "/admin/v2/namespaces/{tenant}/{namespace}",
    "topic": "/admin/v2/persistent/{tenant}/{namespace}/{topic}",
}


@pytest.mark.parametrize(
    ("kind", "known"),
    [("namespace", policies.NAMESPACE), ("topic", policies.TOPIC)],
    ids=["namespace", "topic"],
)
def test_known_policies_are_policies(kind: str, known: Mapping[str, str]) -> None:
    wrong = []
    for name, example in known.items():
        method = "PUT" if (kind, name) in policies._PUT else "POST"
        read = policies._READ_AS.get(name, name)
        wrong += [
            f"{verb} {path}"
            for verb, path in ((method, name), ("GET", read))
            if (verb, f"{PREFIXES[kind]}/{path}") not in ROUTES
        ]
        assert policies.value_of(tuple(example.split())) is not None
    assert wrong == []


def test_policies_of_a_newer_broker_can_be_set(magnetar: Callable[..., Any]) -> None:
    with FakeAdminServer() as server:
        path = "/admin/v2/namespaces/a/b/brandNew"
        server.answers = {f"POST {path}": (405, {"reason": "no"}, {}), f"PUT {path}": None}
        address = ("--admin-url", server.url)
        assert magnetar("namespaces", "policies", "set", "a/b", "brandNew", "7", *address).code == 0
        assert [(each.method, each.body) for each in server.asked] == [("POST", 7), ("PUT", 7)]

"""Commands that are a call: the call they would make, without making it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

P = "/admin/v2"
N = f"{P}/namespaces/a/b"
T = f"{P}/persistent/public/default/t"


@pytest.mark.parametrize(
    ("words", "call", "body"),
    [
        ("tenants create a/b", f"PUT {P}/tenants/a%2Fb",
         {"adminRoles": [], "allowedClusters": ["standalone"]}),
        ("tenants delete x --force", f"DELETE {P}/tenants/x?force=True", None),
        ("clusters create e --broker-url b", f"PUT {P}/clusters/e", {"brokerServiceUrl": "b"}),
        ("namespaces create a/b --bundles 2", f"PUT {N}", {"bundles": {"numBundles": 2}}),
        ("namespaces create a/b", f"PUT {N}", None),
        ("namespaces grant a/b r --action produce", f"POST {N}/permissions/r", ["produce"]),
        ("topics create t", f"PUT {T}", None),
        ("topics create t --partitions 3", f"PUT {T}/partitions", 3),
        ("topics grow non-persistent://a/b/t --to 3", f"POST {P}/non-persistent/a/b/t/partitions", 3),
        ("topics delete t", f"DELETE {T}", None),
        ("brokers set a b/c", f"POST {P}/brokers/configuration/a/b%2Fc", None),
        ("schemas upload t --type string", f"POST {P}/schemas/public/default/t/schema",
         {"type": "STRING", "schema": "", "properties": {}}),
        ("subscriptions create t s/1", f"PUT {T}/subscription/s%2F1", "latest"),
        ("subscriptions reset t s --to 17", f"POST {T}/subscription/s/resetcursor/17", None),
        ("namespaces policies set a/b messageTTL 60", f"POST {N}/messageTTL", 60),
        ("namespaces policies set a/b compactionThreshold 0", f"PUT {N}/compactionThreshold", 0),
        ("namespaces policies set a/b retention x=1 y=z", f"POST {N}/retention", {"x": 1, "y": "z"}),
        ("topics policies unset t retention", f"DELETE {T}/retention", None),
    ],
)  # fmt: skip
def test_the_call_of_a_command(magnetar: Callable[..., Any], words: str, call: str, body: object) -> None:
    ended = magnetar(*words.split(), "--dry-run")
    assert ended.code == 0, ended.err
    first, *rest = ended.out.splitlines()
    assert first == call
    assert [json.loads(line) for line in rest] == ([] if body is None else [body])


def test_what_cannot_be_undone_is_asked(
    magnetar: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # There is no answer, as nothing listens at this port.
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    ended = magnetar("topics", "delete", "t", "--admin-url", "http://127.0.0.1:1")
    assert (ended.code, "Delete t with its messages?" in ended.err) == (130, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("namespaces policies get a/b retenton", 1, "did you mean retention?"),
        ("namespaces policies set a/b retention x=1 y", 2, "neither JSON nor KEY=VALUE"),
        ("namespaces get a", 1, "expected tenant/namespace"),
        ("schemas upload t --type string --property x", 2, "not KEY=VALUE"),
        ("tenants list --admin-url http://127.0.0.1:1", 5, "is the broker running"),
        ("tenants list --context nowhere", 1, "there is no context 'nowhere'"),
        ("subscriptions reset t s --to soon", 2, "is not a time"),
    ],
)
def test_what_is_wrong_is_said(magnetar: Callable[..., Any], words: str, code: int, said: str) -> None:
    ended = magnetar(*words.split())
    assert (ended.code, said in ended.err) == (code, True), ended.err

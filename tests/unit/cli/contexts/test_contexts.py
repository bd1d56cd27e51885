"""Clusters by name."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar.cli.caller import Caller
from magnetar.cli.contexts.contexts import ContextPlace


def test_contexts_are_kept_for_their_owner_alone(magnetar: Callable[..., Any], tmp_path: Path) -> None:
    assert (
        "is the current one"
        in magnetar("context", "add", "a", "--url", "http://a:1", "--token", "secret").out
    )
    assert "current" not in magnetar("context", "add", "b", "--url", "pulsar://b", "--token-file", "~/t").out
    assert stat.S_IMODE((tmp_path / "contexts.json").stat().st_mode) == 0o600
    assert magnetar("context", "use", "b").code == 0
    listed = json.loads(magnetar("context", "list", "-o", "json").out)
    assert [(row["current"], row["name"], row["credential"]) for row in listed] == [
        ("", "a", "token"),
        ("*", "b", os.path.expanduser("~/t")),
    ]
    assert "secret" not in magnetar("context", "list").out
    assert magnetar("context", "remove", "b").code == 0
    assert magnetar("context", "remove", "b").code == 1
    assert "there is no context" in magnetar("context", "use", "b").err


def test_a_broken_file_is_said(magnetar: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "contexts.json").write_text("[]")
    ended = magnetar("context", "list")
    assert (ended.code, "correct or remove the file" in ended.err) == (1, True)


@pytest.mark.parametrize(
    ("place", "admin", "service"),
    [
        (ContextPlace(), "http://127.0.0.1:8080", "pulsar://127.0.0.1:6650"),
        (ContextPlace(url="pulsar://h:1"), "http://h:8080", "pulsar://h:1"),
        (ContextPlace(url="pulsar+ssl://[::1]:1,x:2"), "https://[::1]:8443", "pulsar+ssl://[::1]:1,x:2"),
        (ContextPlace(url="https://h:1"), "https://h:1", "https://h:1"),
        (ContextPlace(admin_url="http://h:1"), "http://h:1", "http://h:1"),
        (ContextPlace(url="pulsar://a", admin_url="http://b"), "http://b", "pulsar://a"),
    ],
)
def test_one_address_says_both(place: ContextPlace, admin: str, service: str) -> None:
    caller = Caller(place)
    assert (caller.admin_url, caller.service_url) == (admin, service)

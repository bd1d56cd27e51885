"""What a process tells the manager of services that started it."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest

from magnetar.server.service_manager import ServiceManager


def told(manager: ServiceManager, receiver: socket.socket) -> list[str]:
    manager.ready()
    manager.stopping()
    return [receiver.recv(100).decode() for _ in range(2)]


def test_a_socket_that_is_a_file(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(5)
        assert told(ServiceManager(str(tmp_path / "notify")), receiver) == ["READY=1", "STOPPING=1"]


def test_a_socket_without_a_file(tmp_path: Path) -> None:
    name = f"magnetar{tmp_path}"[-100:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}")
        receiver.settimeout(5)
        assert told(ServiceManager(f"@{name}"), receiver) == ["READY=1", "STOPPING=1"]


def test_processes_that_are_started_from_here_are_not_told_of_it() -> None:
    environment = {"NOTIFY_SOCKET": "/run/notify", "PATH": "/bin"}
    ServiceManager.taken(environment)
    assert environment == {"PATH": "/bin"}


def test_without_a_manager_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    manager = ServiceManager.taken({})
    manager.ready()
    manager.stopping()
    assert caplog.records == []


def test_a_manager_that_is_out_of_reach_is_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.ERROR):
        ServiceManager(str(tmp_path / "gone")).ready()
    (record,) = caplog.records
    assert record.getMessage() == (
        "the manager of services cannot be told READY=1: No such file or directory;"
        f" does the unit hide {tmp_path}/gone from the process?"
    )

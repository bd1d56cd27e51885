"""Sockets that cost their owner nothing: descriptors, places and probes are left for all others."""

from __future__ import annotations

import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.raw_client import RawClient
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("inside")]

FILES = 640
TOPIC = "persistent://public/default/isolated"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[StandaloneProcess]:
    """A broker that may open few files."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -n {FILES}\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    with StandaloneProcess(tmp_path / "broker", python=str(python)) as broker:
        yield broker


@contextmanager
def idle_sockets(url: str, count: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing."""
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection((address.hostname, address.port), 60))
            for _ in range(count)
        ]


def ask(process: StandaloneProcess, path: str) -> int:
    with urllib.request.urlopen(process.http_url + path, timeout=60) as answer:
        return int(answer.status)


def works(process: StandaloneProcess) -> None:
    """A client that behaves opens a connection, publishes and gets its receipt; probes are answered."""
    with RawClient(process.broker_url) as client:
        client.open_producer(TOPIC)
        client.publish(range(1))
    assert ask(process, "/admin/v2/brokers/ready") == 200
    assert ask(process, "/metrics") == 200


def test_idle_sockets_take_no_descriptor_that_others_need(process: StandaloneProcess) -> None:
    with idle_sockets(process.broker_url, FILES + 100), idle_sockets(process.http_url, 300):
        works(process)
        descriptors = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        assert descriptors < FILES - 200
    works(process)


def test_who_says_no_connect_is_closed_in_time(tmp_path: Path) -> None:
    settings = {"MAGNETAR_CONNECT_TIMEOUT_SECONDS": "1"}
    with (
        StandaloneProcess(tmp_path, ephemeral=True, environment=settings) as process,
        RawClient(process.broker_url) as greeted,
        idle_sockets(process.broker_url, 1) as (idle,),
    ):
        idle.settimeout(60)
        with suppress(ConnectionResetError):
            assert idle.recv(1) == b""
        wait_until(lambda: "no CONNECT in time" in process.log_text(), 60, "the log's line")
        greeted.open_producer(TOPIC)

"""Clients that attack a proxy without any right, while another client is served through it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from support.raw_client import RawClient
from support.sessions import Type, command
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]

SOCKETS = 600
MEMORY_MB = 40
"""Megabytes that an attack may add: 600 sockets, each with the buffers of the kernel and of asyncio."""


@pytest.fixture(scope="module")
def hung() -> Iterator[socket.socket]:
    """A broker that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture(scope="module")
def proxy(
    hung: socket.socket, standalone: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StandaloneProcess]:
    folder = tmp_path_factory.mktemp("attacked")
    brokers = f"{standalone.broker_url},pulsar://127.0.0.1:{hung.getsockname()[1]}"
    settings = {
        "brokers": brokers,
        "brokers_http": standalone.http_url,
        "connect_timeout_seconds": 1,
    }
    file = folder / "proxy.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    with StandaloneProcess(folder / "proxy", role="proxy", options=("--config", str(file))) as process:
        yield process


def memory_mb(process: StandaloneProcess) -> float:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1_000_000


def opened(url: str, stack: contextlib.ExitStack, source: str = "") -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    address = (parts.hostname, parts.port or 0)
    made = socket.create_connection(address, timeout=60, source_address=(source, 0) if source else None)
    return stack.enter_context(made)


@contextlib.contextmanager
def bystander(proxy: StandaloneProcess, broker: StandaloneProcess) -> Iterator[RawClient]:
    """A client that is spliced with the broker."""
    with RawClient(proxy.broker_url, handshake=False) as client:
        named = broker.broker_url.removeprefix("pulsar://")
        client.send(command(Type.CONNECT, client_version="t", protocol_version=21, proxy_to_broker_url=named))
        client.wait(lambda: client.commands(Type.CONNECTED), "CONNECTED")
        yield client


def is_served(client: RawClient, proxy: StandaloneProcess) -> None:
    before = len(client.commands(Type.PONG))
    client.send(command(Type.PING))
    client.wait(lambda: len(client.commands(Type.PONG)) > before, "PONG through the proxy")
    assert urlopen(f"{proxy.http_url}/status.html", timeout=60).status == 200


def all_closed(sockets: list[socket.socket]) -> None:
    for each in sockets:
        with contextlib.suppress(ConnectionResetError):
            while each.recv(65_536):
                pass


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        command(Type.CONNECT, client_version="t")[:9],
        struct.pack(">II", 60_000, 59_990) + b"\x08\x02" + b"x" * 20_000,
    ],
    ids=["nothing", "half a CONNECT", "much of a large CONNECT"],
)
def test_connections_without_a_connect_end(
    proxy: StandaloneProcess, standalone: StandaloneProcess, sent: bytes
) -> None:
    with contextlib.ExitStack() as stack, bystander(proxy, standalone) as other:
        before = memory_mb(proxy)
        sockets = [opened(proxy.broker_url, stack) for _ in range(SOCKETS)]
        for each in sockets:
            each.sendall(sent)
        is_served(other, proxy)
        assert memory_mb(proxy) - before < MEMORY_MB
        all_closed(sockets)
        is_served(other, proxy)


@pytest.mark.parametrize("size", [100_000, 1 << 24, (1 << 32) - 1])
def test_announced_frames_get_no_memory(
    proxy: StandaloneProcess, standalone: StandaloneProcess, size: int
) -> None:
    with contextlib.ExitStack() as stack, bystander(proxy, standalone) as other:
        before = memory_mb(proxy)
        sockets = [opened(proxy.broker_url, stack) for _ in range(100)]
        for each in sockets:
            each.sendall(struct.pack(">II", size, 100) + b"\x08\x02" * 50)
        all_closed(sockets)
        is_served(other, proxy)
        assert memory_mb(proxy) - before < MEMORY_MB


def test_slow_heads_and_bodies_leave_places_to_others(
    proxy: StandaloneProcess, standalone: StandaloneProcess
) -> None:
    with contextlib.ExitStack() as stack, bystander(proxy, standalone) as other:
        heads = [opened(proxy.http_url, stack, "127.0.0.2") for _ in range(300)]
        bodies = [opened(proxy.http_url, stack, "127.0.0.2") for _ in range(100)]
        for each in heads:
            each.sendall(b"GET /admin/v2/tenants HTTP/1.1\r\nHost: ")
        for each in bodies:
            each.sendall(b"POST /admin/v2/tenants/x HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n{")
        is_served(other, proxy)
        assert proxy.admin("GET", "tenants")
        refused = sum(b" 429 " in each.recv(4096) for each in bodies[-20:])
        assert refused == 20, "an address has some of the places only"


def test_a_broker_that_hangs_costs_only_its_own_clients(
    hung: socket.socket, proxy: StandaloneProcess, standalone: StandaloneProcess
) -> None:
    named = f"127.0.0.1:{hung.getsockname()[1]}"
    with contextlib.ExitStack() as stack, bystander(proxy, standalone) as other:
        before = memory_mb(proxy)
        waiting = []
        for _ in range(60):
            client = stack.enter_context(RawClient(proxy.broker_url, handshake=False))
            client.send(command(Type.CONNECT, client_version="t", proxy_to_broker_url=named))
            waiting.append(client)
        is_served(other, proxy)
        for client in waiting:
            client.wait(lambda client=client: client.closed, "given up")  # type: ignore[misc]  # bound at once
            assert client.commands(Type.ERROR)
        is_served(other, proxy)
        assert memory_mb(proxy) - before < MEMORY_MB


def test_each_call_about_other_addresses_is_refused_and_none_is_connected_to(
    proxy: StandaloneProcess, standalone: StandaloneProcess
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere, bystander(proxy, standalone) as other:
        port = elsewhere.getsockname()[1]
        for named in (
            f"127.0.0.1:{port}",
            f"localhost:{port}",
            f"pulsar://x@127.0.0.1:{port}",
            "127.0.0.1:0",
        ):
            with RawClient(proxy.broker_url, handshake=False) as client:
                client.send(command(Type.CONNECT, client_version="t", proxy_to_broker_url=named))
                client.wait(lambda client=client: client.closed, "refused")  # type: ignore[misc]  # as above
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
        wait_until(lambda: "names none of the brokers" in proxy.log_text(), 10, "logged")
        is_served(other, proxy)

"""The port of Flight SQL: off by default, bound as the settings say, with TLS of its own."""

from __future__ import annotations

import importlib.util
import socket
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.flight_port import bound_flight_port
from magnetar.server.security.credential_files import BrokerCredentials
from magnetar.server.settings.checks import check
from magnetar.server.settings.config import StandaloneConfig
from support.certificates import Authority

CONFIG = StandaloneConfig(flight_sql=True, flight_sql_port=0)


class Binding:
    """Binds what is asked for, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, str]] = []

    def __call__(self, host: str, port: int, option: str) -> socket.socket:
        self.asked.append((host, port, option))
        made = socket.socket()
        made.bind(("127.0.0.1", 0))
        return made


def test_it_is_off_by_default() -> None:
    binding = Binding()
    assert bound_flight_port(StandaloneConfig(), None, binding) is None
    assert not binding.asked


def test_without_tls_it_is_where_the_plain_ports_are() -> None:
    binding = Binding()
    port = bound_flight_port(replace(CONFIG, host="0.0.0.0", plain_host="127.0.0.1"), None, binding)
    assert port is not None
    assert binding.asked == [("127.0.0.1", 0, "flight_sql_port")]
    assert port.tls is None
    assert port.url == f"grpc://127.0.0.1:{port.listener.getsockname()[1]}"
    port.listener.close()


def test_with_tls_it_takes_nothing_else_and_agrees_on_http_2(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("localhost")
    config = replace(CONFIG, host="0.0.0.0", plain_host="127.0.0.1", tls_certificate=certificate, tls_key=key)
    credentials, binding = BrokerCredentials(config), Binding()
    port = bound_flight_port(config, credentials, binding)
    assert port is not None
    assert binding.asked == [("0.0.0.0", 0, "flight_sql_port")]
    assert port.url.startswith("grpc+tls://")
    assert credentials.flight_tls is port.tls
    assert _agreed(port.tls, ["h2"]) == "h2"
    assert _agreed(credentials.tls, ["h2"]) is None, "other ports speak no HTTP/2"
    port.listener.close()


def _agreed(context: ssl.SSLContext | None, offered: list[str]) -> str | None:
    assert context is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_context = ssl.create_default_context()
    client_context.check_hostname, client_context.verify_mode = False, ssl.CERT_NONE
    client_context.set_alpn_protocols(offered)
    client = client_context.wrap_bio(incoming, outgoing)
    server = context.wrap_bio(outgoing, incoming, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.selected_alpn_protocol()


def test_without_its_library_the_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StartupError, match=r"pip install '\.\[flight\]'"):
        bound_flight_port(CONFIG, None, Binding())


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (replace(CONFIG, processes=2), "flight_sql needs a broker of one process"),
        (replace(CONFIG, flight_sql_port=8080), "both 8080"),
        (replace(CONFIG, flight_sql_port=70_000), "flight_sql_port"),
    ],
)
def test_settings_that_cannot_be(config: StandaloneConfig, text: str) -> None:
    with pytest.raises(StartupError, match=text):
        check(config)


def test_a_port_that_is_off_is_in_the_way_of_none() -> None:
    check(StandaloneConfig(http_port=32010))

"""How a process names itself and its listening socket."""

from __future__ import annotations

from magnetar.server.addresses import socket_name


def test_a_socket_is_named_by_its_address_and_port() -> None:
    name = socket_name("127.0.0.1", 8080)
    assert name == socket_name("127.0.0.1", 8080)
    assert len(name) == 16
    assert len({name, socket_name("127.0.0.2", 8080), socket_name("127.0.0.1", 8081)}) == 3

"""What a connection costs before it has authenticated."""

from __future__ import annotations

import socket
import struct
from urllib.parse import urlsplit

import pytest

from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("inside")]


def test_a_stranger_gets_no_memory_by_announcing_a_size(standalone: StandaloneProcess) -> None:
    address = urlsplit(standalone.broker_url)
    assert address.hostname is not None
    with socket.create_connection((address.hostname, address.port or 0), timeout=30) as stranger:
        stranger.sendall(struct.pack(">II", 1 << 20, 100) + b"x" * 50)
        assert stranger.recv(1) == b""
    wait_until(lambda: "before CONNECT was answered" in standalone.log_text(), 10, "logged")

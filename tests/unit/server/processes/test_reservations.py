"""Shared ports listen from the start; own ports refuse connections until their process listens."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import replace

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.addresses import listen, listening, reserved
from magnetar.server.processes.reservations import STEP, Reservations
from magnetar.server.settings.config import StandaloneConfig

HOST = f"127.77.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
"""No other program has ports there, so those above a free one are free too."""
CONFIG = StandaloneConfig(processes=2, broker_port=0, http_port=0, host=HOST)


def connects(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection((HOST, port)):
        return True
    return False


def test_an_own_port_refuses_connections_while_its_process_is_away() -> None:
    with contextlib.ExitStack() as cleanup:
        found = Reservations(CONFIG, cleanup)
        ports = [found.shared, *found.own.values()]
        assert len({port for each in ports for port in (each.broker, each.http)}) == 6
        assert found.shared.broker_tls == found.descriptors.https == 0
        assert connects(found.shared.broker)
        own = found.own[1].broker
        for _ in range(2):
            assert not connects(own)
            process = reserved(HOST, own, "--port")
            assert not connects(own)
            listen(process, "--port")
            assert connects(own)
            process.close()
        assert not connects(own)


def test_own_ports_follow_the_shared_one() -> None:
    free = [listening(HOST, 0, "--port") for _ in range(2)]
    broker, http = (each.getsockname()[1] for each in free)
    for each in free:
        each.close()
    with contextlib.ExitStack() as cleanup:
        found = Reservations(replace(CONFIG, processes=1, broker_port=broker, http_port=http), cleanup)
        assert (found.shared.broker, found.own[1].broker) == (broker, broker + STEP)
        assert found.own[1].http == http + STEP


def test_a_port_that_another_program_has_is_refused() -> None:
    with contextlib.ExitStack() as cleanup, listening(HOST, 0, "--port") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=f"port {port} on {HOST} is in use"):
            Reservations(replace(CONFIG, broker_port=port, processes=1), cleanup)


@pytest.mark.parametrize(("port", "process", "beyond"), [(65_435, 2, 65_635), (65_436, 1, 65_536)])
def test_a_port_beyond_the_last_one_is_refused(port: int, process: int, beyond: int) -> None:
    with (
        contextlib.ExitStack() as cleanup,
        pytest.raises(StartupError, match=f"process {process} would have port {beyond}"),
    ):
        Reservations(replace(CONFIG, broker_port=port), cleanup)

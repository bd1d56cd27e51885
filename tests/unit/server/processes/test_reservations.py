"""Shared ports listen from the start; own ports refuse connections until their process listens."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.addresses import listen, listening, reserved
from magnetar.server.processes.reservations import STEP, Reservations
from magnetar.server.settings.config import StandaloneConfig


def connects(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def test_an_own_port_refuses_connections_while_its_process_is_away() -> None:
    with contextlib.ExitStack() as cleanup:
        found = Reservations(StandaloneConfig(processes=2, broker_port=0, http_port=0), cleanup)
        ports = [found.shared, *found.own.values()]
        assert len({port for each in ports for port in (each.broker, each.http)}) == 6
        assert found.shared.broker_tls == found.descriptors.https == 0
        assert connects(found.shared.broker)
        own = found.own[1].broker
        for _ in range(2):
            assert not connects(own)
            process = reserved("127.0.0.1", own, "--port")
            assert not connects(own)
            listen(process, "--port")
            assert connects(own)
            process.close()
        assert not connects(own)


def test_own_ports_follow_the_shared_one() -> None:
    free = [listening("127.0.0.1", 0, "--port") for _ in range(2)]
    broker, http = (each.getsockname()[1] for each in free)
    for each in free:
        each.close()
    if max(broker, http) + STEP > 65535:
        pytest.skip("the kernel gave a port at the very end")
    with contextlib.ExitStack() as cleanup:
        found = Reservations(StandaloneConfig(processes=1, broker_port=broker, http_port=http), cleanup)
        assert (found.shared.broker, found.own[1].broker) == (broker, broker + STEP)
        assert found.own[1].http == http + STEP


def test_a_port_that_another_program_has_is_refused() -> None:
    with contextlib.ExitStack() as cleanup, listening("127.0.0.1", 0, "--port") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=f"port {port} on 127.0.0.1 is in use"):
            Reservations(StandaloneConfig(processes=2, broker_port=port, http_port=0), cleanup)


def test_a_port_beyond_the_last_one_is_refused() -> None:
    config = StandaloneConfig(processes=2, broker_port=0, http_port=0)
    with contextlib.ExitStack() as cleanup, listening("127.0.0.1", 0, "--port") as high:
        port = high.getsockname()[1]
        high.close()
        # The kernel gives ports from 32768 on, so one of the processes is beyond the last port.
        many = replace(config, processes=(65535 - port) // STEP + 1, broker_port=port)
        with pytest.raises(StartupError, match=f"process {many.processes} would have port 65[56]"):
            Reservations(many, cleanup)

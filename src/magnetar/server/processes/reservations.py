"""The ports of several processes: those that all share, and those that each has for itself."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.server.addresses import listening, reserved
from magnetar.server.processes.seat import Ports
from magnetar.server.settings.config import StandaloneConfig

STEP: Final = 100
"""The own ports of process n are n times so much above the shared ones."""
_PORT_MAX: Final = 65535


class Reservations:
    """Holds the ports for as long as the supervisor lives.

    The shared sockets listen here and are inherited by every process: a connection waits in one queue, from
    which any process takes it, so that none is lost when a process ends. Own ports are only reserved. They
    refuse connections while their process is away, which is how other brokers see that it is gone.
    """

    def __init__(self, config: StandaloneConfig, cleanup: contextlib.ExitStack) -> None:
        """Raises StartupError when a port is in use, or would be beyond the last one."""
        self._cleanup = cleanup
        plain, secured = config.plain_host or config.host, config.host
        with_tls = config.tls_certificate is not None
        wanted = (
            (plain, config.broker_port, "--port"),
            (plain, config.http_port, "--http-port"),
            *(
                (
                    (secured, config.broker_tls_port, "broker_tls_port"),
                    (secured, config.https_port, "https_port"),
                )
                if with_tls
                else ()
            ),
        )
        for _, port, option in wanted:
            _check_last(port, config.processes, option)
        sockets = [self._kept(listening(host, port, option)) for host, port, option in wanted]
        self.descriptors = Ports(*(each.fileno() for each in sockets))
        """Descriptors of the shared sockets."""
        self.shared = Ports(*(_port(each) for each in sockets))
        self.own = {
            number: Ports(*(self._reserve(host, port, number, option) for host, port, option in wanted))
            for number in range(1, config.processes + 1)
        }
        """Own ports of each process."""

    def _reserve(self, host: str, shared: int, number: int, option: str) -> int:
        return _port(self._kept(reserved(host, shared + number * STEP if shared else 0, option)))

    def _kept(self, made: socket.socket) -> socket.socket:
        self._cleanup.callback(made.close)
        return made


def _check_last(shared: int, processes: int, option: str) -> None:
    """Raises StartupError when not every process can have its port: before any port is taken."""
    beyond = (_PORT_MAX - shared) // STEP + 1
    if shared and beyond <= processes:
        raise StartupError(
            f"process {beyond} would have port {shared + beyond * STEP}, {beyond} times {STEP}"
            f" above {option}: choose a lower one for {option}, or 0"
        )


def _port(bound: socket.socket) -> int:
    return int(bound.getsockname()[1])

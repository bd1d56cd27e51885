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
        """Raises StartupError when a port is in use."""
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
        sockets = [listening(host, port, option) for host, port, option in wanted]
        for each in sockets:
            cleanup.callback(each.close)
        self.descriptors = Ports(*(each.fileno() for each in sockets))
        """Descriptors of the shared sockets."""
        self.shared = Ports(*(_port(each) for each in sockets))
        self.own = {
            number: Ports(*(self._reserve(host, port, number, option) for host, port, option in wanted))
            for number in range(1, config.processes + 1)
        }
        """Own ports of each process."""

    def _reserve(self, host: str, shared: int, number: int, option: str) -> int:
        port = shared + number * STEP if shared else 0
        if port > _PORT_MAX:
            raise StartupError(
                f"process {number} would have port {port}, {number} times {STEP} above {option}:"
                f" choose a lower one for {option}, or 0"
            )
        kept = reserved(host, port, option)
        self._cleanup.callback(kept.close)
        return _port(kept)


def _port(bound: socket.socket) -> int:
    return int(bound.getsockname()[1])

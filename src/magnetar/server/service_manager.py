"""Tells systemd how far a process is: the protocol of sd_notify(3), for units of `Type=notify`.

A datagram of `NAME=VALUE` goes to the Unix socket that `NOTIFY_SOCKET` names. A leading `@` stands for a name
without a file. A process that no manager of services has started has no such variable, and sends nothing.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Final

_log = logging.getLogger("magnetar.server")

_VARIABLE: Final = "NOTIFY_SOCKET"


class ServiceManager:
    """The manager of services that started this process, if there is one."""

    def __init__(self, address: str) -> None:
        """`address`: value of the variable; "": there is no manager."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    @classmethod
    def taken(cls, environment: MutableMapping[str, str] = os.environ) -> ServiceManager:
        """The manager that the environment names. The variable is taken out of it: a bookie or another
        process that is started from here must not speak for this one."""
        return cls(environment.pop(_VARIABLE, ""))

    def ready(self) -> None:
        """The process serves its clients; what was ordered after it may start."""
        self._tell("READY=1")

    def stopping(self) -> None:
        """The process drains, and ends by itself."""
        self._tell("STOPPING=1")

    def _tell(self, state: str) -> None:
        """Sends it. An error is logged: the manager then ends the process after its own timeout, and the log
        says why."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.connect(self._address)
                sender.send(state.encode())
        except OSError as error:
            # The process serves all the same: whether it may go on is for the manager to decide.
            _log.error(
                "the manager of services cannot be told %s: %s; does the unit hide %s from the process?",
                state,
                error.strerror or error,
                self._address.replace("\0", "@"),
            )

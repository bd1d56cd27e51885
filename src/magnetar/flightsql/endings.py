"""How a call ends: its code, and the headers that say it. Pure."""

from __future__ import annotations

import logging

from magnetar.admin.calls.errors import status_of, words_of
from magnetar.base.errors import MagnetarError
from magnetar.flightsql.grpc_messages import GrpcError, code_of, shown

_log = logging.getLogger("magnetar.flightsql")


def told(error: MagnetarError) -> tuple[int, str]:
    """The code and the text of an error."""
    if isinstance(error, GrpcError):
        return error.code, str(error)
    status = status_of(error)
    if status >= 500 and status != 501:
        _log.warning("a call failed: %s", error)
    reason, remedy = words_of(error, "")
    return code_of(status), f"{reason}; {remedy}" if remedy else reason


def end(code: int, reason: str, *, first: bool) -> list[tuple[str, str]]:
    """Trailers; or, when nothing was sent, all there is."""
    head = [(":status", "200"), ("content-type", "application/grpc")] if first else []
    said = [("grpc-message", shown(reason))] if reason else []
    return [*head, ("grpc-status", str(code)), *said]

"""Exit codes of commands.

| Code | Meaning |
|---|---|
| 0 | done |
| 1 | it could not be done |
| 2 | wrong usage |
| 3 | not allowed: the broker does not know you, or you lack the right |
| 4 | not found: the named thing does not exist |
| 5 | unreachable, or no answer in time |
| 6 | conflict: it exists already, or its state forbids the change |
| 7 | nothing found: `search` and `peek` without a message, `doctor` with a failed check |
| 130 | interrupted |
"""

from __future__ import annotations

from typing import Final

from magnetar.base.errors import MagnetarError

FAILED: Final = 1
NOT_ALLOWED: Final = 3
NOT_THERE: Final = 4
UNREACHABLE: Final = 5
CONFLICT: Final = 6
NOT_FOUND: Final = 7
INTERRUPTED: Final = 130

_BY_STATUS: Final = {
    401: NOT_ALLOWED,
    403: NOT_ALLOWED,
    404: NOT_THERE,
    409: CONFLICT,
    412: CONFLICT,
    503: UNREACHABLE,
    504: UNREACHABLE,
}

_BY_SERVER_ERROR: Final = {
    "AuthenticationError": NOT_ALLOWED,
    "AuthorizationError": NOT_ALLOWED,
    "TopicNotFound": NOT_THERE,
    "SubscriptionNotFound": NOT_THERE,
    "ConsumerNotFound": NOT_THERE,
    "ConsumerBusy": CONFLICT,
    "ProducerBusy": CONFLICT,
    "ServiceNotReady": UNREACHABLE,
}


def code_of(error: MagnetarError) -> int:
    """The exit code for an error. The fields of the error decide, not its class, so the rooms that raise it
    need not be imported."""
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return _BY_STATUS.get(status, FAILED)
    code = getattr(error, "code", None)
    if isinstance(code, int):
        from magnetar.wire import pulsar_pb2 as pb

        name = pb.ServerError.Name(code) if code in pb.ServerError.values() else ""
        return _BY_SERVER_ERROR.get(name, FAILED)
    if type(error).__name__ in ("AdminUnreachableError", "UnreachableError", "RequestTimeoutError"):
        return UNREACHABLE
    return FAILED

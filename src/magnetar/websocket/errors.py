"""Errors of WebSockets, and their forms for clients.

Before the handshake an error is an HTTP status. Afterwards an error of a producer's message is an answer
`{"result": "send-error:<n>", ...}`, and every other error closes the socket.

Source: error numbers and statuses of Pulsar's WebSocket API. Close codes below 1000 are illegal (RFC 6455,
7.4), so 4000 is added to Pulsar's number, in the range for applications.
"""

from __future__ import annotations

import enum
from typing import Final

from magnetar.auth.errors import AuthenticationError
from magnetar.base.errors import MagnetarError
from magnetar.wire import pulsar_pb2 as pb


class Fault(enum.Enum):
    """Pulsar's error numbers that may occur on an open socket."""

    NOT_JSON = (3, "Failed to de-serialize from JSON")
    NOT_AUTHENTICATED = (5, "Failed to authenticate client")
    NOT_AUTHORIZED = (6, "Client is not authorized")
    NOT_BASE64 = (7, "Invalid payload encoding")
    UNKNOWN = (8, "Unknown error")

    @property
    def number(self) -> int:
        """The number in `send-error:<n>`."""
        return self.value[0]

    @property
    def text(self) -> str:
        """The beginning of the reason in a close frame."""
        return self.value[1]

    @property
    def close_code(self) -> int:
        """The code of the close frame."""
        return _CLOSE_CODES + self.number


_CLOSE_CODES: Final = 4000

TRY_AGAIN_LATER: Final = 1013
"""Close code of a broker that has no memory for this client. Source: IANA's registry of close codes."""
GOING_AWAY: Final = 1001
"""Close code of a broker that stops. Source: RFC 6455, 7.4.1."""


class WebSocketError(MagnetarError):
    """Base class of the errors of this room."""


class OpeningError(WebSocketError):
    """The socket cannot be opened."""


class BadQueryError(OpeningError):
    """A parameter of the query cannot be read or is not supported."""


class NoSuchPathError(OpeningError):
    """The path names no producer, consumer or reader."""


class TooManySocketsError(OpeningError):
    """The limit of open sockets is reached."""


class TooMuchUsedError(OpeningError):
    """The role has used more than its share."""

    def __init__(self, owner: str, rest_ms: int) -> None:
        self.rest_s = max(1, -(-rest_ms // 1_000))
        super().__init__(
            f"{owner} has used what commands_per_second_per_role or loop_percent_per_role allow it: try again"
            f" in {self.rest_s} s, or have an operator raise the limit"
        )


class RefusedByBrokerError(OpeningError):
    """The broker's answer to a command was an error."""

    def __init__(self, code: pb.ServerError, message: str) -> None:
        super().__init__(message or pb.ServerError.Name(code))
        self.code = code

    @property
    def status(self) -> int:
        """The HTTP status for the broker's code."""
        return CODE_STATUSES[self.code]

    @property
    def passing(self) -> bool:
        """Whether the same command may succeed a little later."""
        return self.code in _PASSING

    @property
    def fault(self) -> Fault:
        """The fault with which an open socket is closed."""
        if self.code == pb.AuthenticationError:
            return Fault.NOT_AUTHENTICATED
        return Fault.NOT_AUTHORIZED if self.code == pb.AuthorizationError else Fault.UNKNOWN


class LineClosedError(OpeningError):
    """The broker ended the connection before it answered."""


class MessageError(WebSocketError):
    """A text of the client is invalid."""

    def __init__(self, fault: Fault, message: str, context: str | None = None) -> None:
        super().__init__(message)
        self.fault = fault
        self.context = context
        """The client's text by which it recognises the answer."""


class UndeliverableError(WebSocketError):
    """A message cannot be delivered to this consumer; the socket is closed with this reason."""


CODE_STATUSES: Final[dict[pb.ServerError, int]] = {
    pb.AuthenticationError: 401,
    pb.AuthorizationError: 403,
    pb.TopicNotFound: 404,
    pb.SubscriptionNotFound: 404,
    pb.ConsumerNotFound: 404,
    pb.InvalidTopicName: 400,
    pb.ConsumerBusy: 409,
    pb.ProducerBusy: 409,
    pb.ProducerFenced: 409,
    pb.IncompatibleSchema: 409,
    pb.NotAllowedError: 405,
    pb.ConsumerAssignError: 400,
    pb.TooManyRequests: 429,
    pb.ProducerBlockedQuotaExceededError: 503,
    pb.ProducerBlockedQuotaExceededException: 503,
    pb.TopicTerminatedError: 503,
    pb.ServiceNotReady: 503,
    **dict.fromkeys(
        (
            pb.UnknownError,
            pb.MetadataError,
            pb.PersistenceError,
            pb.ChecksumError,
            pb.UnsupportedVersionError,
            # Codes of transactions, which are not supported here.
            pb.TransactionCoordinatorNotFound,
            pb.InvalidTxnStatus,
            pb.TransactionConflict,
            pb.TransactionNotFound,
        ),
        500,
    ),
}
"""HTTP status of a handshake that the broker refused, for every code of a refusal."""

STATUSES: Final[dict[type[MagnetarError], int]] = {
    BadQueryError: 400,
    NoSuchPathError: 404,
    TooManySocketsError: 503,
    TooMuchUsedError: 429,
    LineClosedError: 503,
    AuthenticationError: 401,
    MagnetarError: 400,
}
"""HTTP status of a handshake that failed here, by class; another class has the status of its nearest base."""

_PASSING: Final = frozenset(
    (pb.ServiceNotReady, pb.PersistenceError, pb.MetadataError, pb.ConsumerBusy, pb.ProducerBusy)
)


def status_of(error: MagnetarError) -> int:
    """HTTP status of a handshake that failed with `error`."""
    if isinstance(error, RefusedByBrokerError):
        return error.status
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)

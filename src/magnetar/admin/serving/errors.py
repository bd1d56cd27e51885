"""Which HTTP status an error gets.

Source: Pulsar's admin API: 404 for what is not there, 409 for what is there or in use, 412 for illegal
names, 503 for what may work a little later.
"""

from __future__ import annotations

from typing import ClassVar, Final

from magnetar.auth.errors import AuthenticationError, AuthorizationError
from magnetar.base.errors import (
    DiskFullError,
    LogError,
    MagnetarError,
    MetadataError,
    StorageFailedError,
)
from magnetar.base.names import InvalidNameError, InvalidNamespaceNameError, InvalidTopicNameError
from magnetar.broker.errors import NamespaceNotFoundError, RefusedError
from magnetar.ledger.api import NoSuchEntryError, NoSuchLedgerError
from magnetar.managedlog.errors import CursorNotFoundError, LogNotFoundError, LogTerminatedError
from magnetar.metadata.store import BadVersionError, HasChildrenError, NotFoundError, StoreClosedError
from magnetar.schemas.errors import IncompatibleSchemaError, InvalidSchemaError
from magnetar.tiered.errors import ReadOnlyStoreError


class RequestError(MagnetarError):
    """The request itself is at fault, before the broker is asked."""

    http_status: ClassVar[int] = 400

    def __init__(self, reason: str, *, remedy: str = "") -> None:
        """`reason`: in Pulsar's words where clients compare them; `remedy`: what to do, beside it."""
        super().__init__(reason)
        self.remedy = remedy


class BadRequestError(RequestError):
    """A body, number or parameter that cannot be read."""


class NotHereError(RequestError):
    """What the path names does not exist."""

    http_status = 404


class NotAcceptableError(RequestError):
    """A number out of its range (Pulsar answers 406 for partitions)."""

    http_status = 406


class ForbiddenError(RequestError):
    """A web page of another origin sent this."""

    http_status = 403


class MisdirectedError(RequestError):
    """The Host header names no address of this broker."""

    http_status = 421


class TooLargeError(RequestError):
    """The body is larger than any legal one."""

    http_status = 413


class TooSlowError(RequestError):
    """The body did not arrive in time."""

    http_status = 408


class TooMuchUsedError(RequestError):
    """The role has used more than it may."""

    http_status = 429

    def __init__(self, owner: str, rest_ms: int) -> None:
        self.rest_s = max(1, -(-rest_ms // 1_000))
        super().__init__(
            f"{owner} has used what commands_per_second_per_role or loop_percent_per_role allow it",
            remedy=f"call again in {self.rest_s} s, or have an operator raise the limit",
        )


class UnreadablePayloadError(RequestError):
    """A stored payload is not what its metadata says; only its producer could have made it so."""

    http_status = 422


class FewerPartitionsError(RequestError):
    """Partitions cannot be taken away (Pulsar answers 422)."""

    http_status = 422


class NotImplementedHereError(RequestError):
    """Part of Pulsar's API that this broker does not offer; the message names it."""

    http_status = 501


_BRANCHES: Final[tuple[tuple[type[MagnetarError], int], ...]] = (
    (InvalidNameError, 412),
    (AuthenticationError, 401),
    (AuthorizationError, 403),
    (InvalidSchemaError, 422),
    (IncompatibleSchemaError, 409),
    (NoSuchEntryError, 404),
    (NoSuchLedgerError, 404),
    (LogNotFoundError, 404),
    (CursorNotFoundError, 404),
    (LogTerminatedError, 409),
    (NotFoundError, 404),
    (BadVersionError, 409),
    (HasChildrenError, 409),
    (StoreClosedError, 503),
    (DiskFullError, 507),
    (ReadOnlyStoreError, 409),
    (StorageFailedError, 500),
    (LogError, 500),
    (MetadataError, 500),
)
"""Statuses of errors from below the broker, most special first."""


def words_of(error: MagnetarError, path: str) -> tuple[str, str]:
    """What an answer says of `error`, in Pulsar's words where clients compare them, and the remedy beside it.

    `path`: as it is routed. Pulsar names a missing namespace otherwise where the path names a topic.
    """
    reason, remedy = str(error), getattr(error, "remedy", "")
    if isinstance(error, InvalidTopicNameError):
        return "Topic name is not valid", reason
    if isinstance(error, InvalidNamespaceNameError):
        return "Namespace name is not valid", reason
    if isinstance(error, NamespaceNotFoundError) and "{topic}" in path:
        return "Namespace not found", remedy
    return reason, remedy


def status_of(error: MagnetarError) -> int:
    """The status that tells a client of `error`; 503 for what may be tried again."""
    if isinstance(error, (RefusedError, RequestError)):
        return error.http_status
    for branch, status in _BRANCHES:
        if isinstance(error, branch):
            return 503 if status == 500 and error.retriable else status
    return 503 if error.retriable else 500

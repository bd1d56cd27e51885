"""Refusals of the broker, each with its code on the wire.

Source: Pulsar binary protocol, `ServerError`; which code clients expect when: the error mapping that
official clients use (fenced or not ready → ServiceNotReady, naming clash → ProducerBusy, ...).
"""

from __future__ import annotations

from typing import ClassVar

from magnetar.auth.errors import AuthenticationError, AuthorizationError
from magnetar.base.errors import (
    BrokerError,
    DiskFullError,
    LedgerError,
    LogError,
    MagnetarError,
    MetadataError,
    StorageError,
)
from magnetar.base.names import InvalidNameError
from magnetar.managedlog.errors import LogTerminatedError
from magnetar.schemas.errors import SchemaError
from magnetar.wire import pulsar_pb2 as pb


class RefusedError(BrokerError):
    """Base of all refusals that a client is told about."""

    code: ClassVar[pb.ServerError] = pb.UnknownError
    """`ServerError` on the wire."""
    http_status: ClassVar[int] = 500
    """Status of the admin API."""

    def __init__(self, reason: str = "", *, remedy: str = "") -> None:
        """`reason`: in Pulsar's words where clients compare them; `remedy`: what to do, which the admin API
        tells in a field beside it."""
        super().__init__(reason)
        self.remedy = remedy


class TopicNotFoundError(RefusedError):
    code = pb.TopicNotFound
    http_status = 404


class SubscriptionNotFoundError(RefusedError):
    code = pb.SubscriptionNotFound
    http_status = 404


class ConsumerNotFoundError(RefusedError):
    code = pb.ConsumerNotFound
    http_status = 404


class WrongConsumerError(RefusedError):
    """The consumer that a command names is not connected here, or cannot do what it asks for."""

    code = pb.MetadataError
    http_status = 412


class NamespaceNotFoundError(RefusedError):
    """The tenant or namespace does not exist; topics are created, namespaces are not."""

    code = pb.TopicNotFound
    http_status = 404


class ConflictError(RefusedError):
    """What should be created exists, or what should be deleted is in use."""

    code = pb.NotAllowedError
    http_status = 409


class PreconditionFailedError(RefusedError):
    code = pb.NotAllowedError
    http_status = 412


class TooManyConnectionsError(RefusedError):
    """The broker, an address or a role has as many connections as it may have (Pulsar's code for it)."""

    code = pb.NotAllowedError
    http_status = 429


class ConsumerBusyError(RefusedError):
    """An exclusive subscription has its consumer, or the types of subscription differ."""

    code = pb.ConsumerBusy
    http_status = 409


def of_another_mode(active_sticky: bool, sticky: bool) -> ConsumerBusyError:
    """For a Key_Shared consumer whose mode is not that of the consumers that are there."""
    modes = ("AUTO_SPLIT", "STICKY")
    return ConsumerBusyError(
        "Subscription is of different type. Active subscription key_shared mode of"
        f" '{modes[active_sticky]}' is different than the connecting consumer's key_shared mode"
        f" '{modes[sticky]}'."
        if active_sticky != sticky
        else "Subscription is of different type. Its consumers agree otherwise on allowOutOfOrderDelivery."
    )


class ProducerBusyError(RefusedError):
    """A producer of that name, or an exclusive one, is connected."""

    code = pb.ProducerBusy
    http_status = 409


class ProducerFencedError(RefusedError):
    code = pb.ProducerFenced
    http_status = 409


class ServiceNotReadyError(RefusedError):
    """Not now; the client looks up again and retries."""

    code = pb.ServiceNotReady
    http_status = 503
    retriable = True


class InvalidTopicError(RefusedError):
    code = pb.InvalidTopicName
    http_status = 412


class EmptyNameError(RefusedError):
    """A subscription without a name; Pulsar's code for it, which clients take for a wrong configuration."""

    code = pb.ProducerBusy
    http_status = 412


class NotAllowedError(RefusedError):
    code = pb.NotAllowedError
    http_status = 405


class UnsupportedError(RefusedError):
    """A command or option that this broker does not offer (yet); the message names it."""

    code = pb.NotAllowedError
    http_status = 501


class TopicTerminatedError(RefusedError):
    code = pb.TopicTerminatedError
    http_status = 409


class ChecksumMismatchError(RefusedError):
    code = pb.ChecksumError
    http_status = 400


class EncryptionRequiredError(RefusedError):
    """The topic takes encrypted messages only."""

    code = pb.MetadataError
    http_status = 412


class BacklogQuotaHoldsError(RefusedError):
    """The backlog is over its quota: the client waits and tries again."""

    code = pb.ProducerBlockedQuotaExceededError
    http_status = 412
    retriable = True


class BacklogQuotaRefusesError(RefusedError):
    """The backlog is over its quota: the client is told, and its pending messages fail."""

    code = pb.ProducerBlockedQuotaExceededException
    http_status = 412


class StoredQuotaError(RefusedError):
    """The tenant stores all that it may: the client is told, and its pending messages fail."""

    code = pb.ProducerBlockedQuotaExceededException
    http_status = 412


class PersistenceFailedError(RefusedError):
    """The log could not keep what was sent; nothing of it was acknowledged."""

    code = pb.PersistenceError
    http_status = 500
    retriable = True


class ConsumerAssignmentError(RefusedError):
    """Sticky hash ranges overlap or are malformed."""

    code = pb.ConsumerAssignError
    http_status = 400


_BRANCH_CODES: tuple[tuple[type[MagnetarError], pb.ServerError], ...] = (
    (InvalidNameError, pb.InvalidTopicName),
    (AuthenticationError, pb.AuthenticationError),
    (AuthorizationError, pb.AuthorizationError),
    (SchemaError, pb.IncompatibleSchema),
    (DiskFullError, pb.PersistenceError),
    (StorageError, pb.PersistenceError),
    (LedgerError, pb.PersistenceError),
    (LogTerminatedError, pb.TopicTerminatedError),
    (LogError, pb.PersistenceError),
    (MetadataError, pb.MetadataError),
)
"""Codes of errors from below the broker, most special first."""


def told(error: BaseException) -> str:
    """What a client of the binary protocol is told, which has no field for a remedy: Pulsar's words first."""
    text, remedy = str(error), getattr(error, "remedy", "")
    if isinstance(error, InvalidNameError):
        return f"Invalid topic name: {error.text[:200]!r}: {error.rule}"
    if isinstance(error, NamespaceNotFoundError):
        text = "Namespace not found"
    return f"{text.rstrip('.')}; {remedy}" if remedy else text


def wire_code(error: BaseException) -> pb.ServerError:
    """The `ServerError` that tells a client of `error`."""
    if isinstance(error, RefusedError):
        return error.code
    for branch, code in _BRANCH_CODES:
        if isinstance(error, branch):
            return code
    return pb.UnknownError

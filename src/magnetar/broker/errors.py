"""Refusals of the broker, each with its code on the wire.

Source: Pulsar binary protocol, `ServerError`; which code clients expect when: the error mapping that
official clients use (fenced or not ready → ServiceNotReady, naming clash → ProducerBusy, ...).
"""

from __future__ import annotations

from typing import Final

from magnetar.auth.errors import AuthenticationError, AuthorizationError
from magnetar.base.errors import (
    BrokerError,
    LedgerError,
    LogError,
    MetadataError,
    StorageError,
)
from magnetar.base.names import InvalidNameError
from magnetar.managedlog.errors import LogTerminatedError
from magnetar.schemas.errors import SchemaError
from magnetar.wire import pulsar_pb2 as pb


class RefusedError(BrokerError):
    """Base of all refusals that are sent to clients."""

    def __init__(self, reason: str = "", *, remedy: str = "") -> None:
        """`reason`: in Pulsar's words where clients compare them; `remedy`: what to do, which the admin API
        tells in a field beside it."""
        super().__init__(reason)
        self.remedy = remedy


class TopicNotFoundError(RefusedError):
    """No such topic, and none is made for the asking."""


class SubscriptionNotFoundError(RefusedError):
    """The topic has no subscription of this name."""


class ConsumerNotFoundError(RefusedError):
    """The connection has no consumer of this id."""


class WrongConsumerError(RefusedError):
    """The consumer that a command names is not connected here, or cannot do what it asks for."""


class NamespaceNotFoundError(RefusedError):
    """The tenant or namespace does not exist; topics are created, namespaces are not."""


class ConflictError(RefusedError):
    """The object to create exists, or the object to delete is in use."""


class PreconditionFailedError(RefusedError):
    """The state of what is named forbids the request."""


class TooManyConnectionsError(RefusedError):
    """The broker, an address or a role has as many connections as it may have (Pulsar's code for it)."""


class ConsumerBusyError(RefusedError):
    """An exclusive subscription has its consumer, or the types of subscription differ."""


def of_another_mode(active_sticky: bool, sticky: bool) -> ConsumerBusyError:
    """The error for a Key_Shared consumer whose mode differs from that of the present consumers."""
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


class ProducerFencedError(RefusedError):
    """Another producer took over this one's exclusive access."""


class ServiceNotReadyError(RefusedError):
    """Not possible now; the client looks up again and retries."""

    retriable = True


class InvalidTopicError(RefusedError):
    """The name of a topic or subscription is invalid, or may not be used here."""


class EmptyNameError(RefusedError):
    """A subscription without a name; Pulsar's code for it, which clients take for a wrong configuration."""


class NotAllowedError(RefusedError):
    """The topic or its policies do not allow the request."""


class UnsupportedError(RefusedError):
    """A command or option that this broker does not offer (yet); the message names it."""


class TopicTerminatedError(RefusedError):
    """The topic is terminated: it accepts no more messages."""


class ChecksumMismatchError(RefusedError):
    """The checksum of a message does not match its bytes."""


class EncryptionRequiredError(RefusedError):
    """The topic accepts encrypted messages only."""


class BacklogQuotaHoldsError(RefusedError):
    """The backlog is over its quota: the client waits and tries again."""

    retriable = True


class BacklogQuotaRefusesError(RefusedError):
    """The backlog exceeds its quota: the client is told, and its pending messages fail."""


class StoredQuotaError(RefusedError):
    """The tenant has used up its storage: the client is told, and its pending messages fail."""


class CoordinatorNotFoundError(RefusedError):
    """This broker does not coordinate these transactions now; clients look up again, and repeat the
    request."""

    retriable = True


class TransactionNotFoundError(RefusedError):
    """The transaction is unknown, was forgotten, or belongs to another role."""


class TransactionStateError(RefusedError):
    """The transaction has ended, or ends, the other way."""


class TransactionConflictError(RefusedError):
    """The messages to acknowledge in a transaction are acknowledged already, or in another transaction."""


class TooManyTransactionsError(RefusedError):
    """Too many transactions are open."""

    retriable = True


class PersistenceFailedError(RefusedError):
    """The log could not keep what was sent; nothing of it was acknowledged."""

    retriable = True


class ConsumerAssignmentError(RefusedError):
    """Sticky hash ranges overlap or are malformed."""


WIRE_CODES: Final[dict[type[BaseException], pb.ServerError]] = {
    TopicNotFoundError: pb.TopicNotFound,
    SubscriptionNotFoundError: pb.SubscriptionNotFound,
    ConsumerNotFoundError: pb.ConsumerNotFound,
    WrongConsumerError: pb.MetadataError,
    NamespaceNotFoundError: pb.TopicNotFound,
    ConflictError: pb.NotAllowedError,
    PreconditionFailedError: pb.NotAllowedError,
    TooManyConnectionsError: pb.NotAllowedError,
    ConsumerBusyError: pb.ConsumerBusy,
    ProducerBusyError: pb.ProducerBusy,
    ProducerFencedError: pb.ProducerFenced,
    ServiceNotReadyError: pb.ServiceNotReady,
    InvalidTopicError: pb.InvalidTopicName,
    EmptyNameError: pb.ProducerBusy,
    NotAllowedError: pb.NotAllowedError,
    UnsupportedError: pb.NotAllowedError,
    TopicTerminatedError: pb.TopicTerminatedError,
    ChecksumMismatchError: pb.ChecksumError,
    EncryptionRequiredError: pb.MetadataError,
    BacklogQuotaHoldsError: pb.ProducerBlockedQuotaExceededError,
    BacklogQuotaRefusesError: pb.ProducerBlockedQuotaExceededException,
    StoredQuotaError: pb.ProducerBlockedQuotaExceededException,
    CoordinatorNotFoundError: pb.TransactionCoordinatorNotFound,
    TransactionNotFoundError: pb.TransactionNotFound,
    TransactionStateError: pb.InvalidTxnStatus,
    TransactionConflictError: pb.TransactionConflict,
    TooManyTransactionsError: pb.TooManyRequests,
    PersistenceFailedError: pb.PersistenceError,
    ConsumerAssignmentError: pb.ConsumerAssignError,
    # From below the broker, whole branches:
    InvalidNameError: pb.InvalidTopicName,
    AuthenticationError: pb.AuthenticationError,
    AuthorizationError: pb.AuthorizationError,
    SchemaError: pb.IncompatibleSchema,
    StorageError: pb.PersistenceError,
    LedgerError: pb.PersistenceError,
    LogTerminatedError: pb.TopicTerminatedError,
    LogError: pb.PersistenceError,
    MetadataError: pb.MetadataError,
    BaseException: pb.UnknownError,
}
"""`ServerError` on the wire for each error; a class that is not here has the code of its nearest base."""


def told(error: BaseException) -> str:
    """The text for a client of the binary protocol, which has no field for a remedy: Pulsar's words first."""
    text, remedy = str(error), getattr(error, "remedy", "")
    if isinstance(error, InvalidNameError):
        return f"Invalid topic name: {error.text[:200]!r}: {error.rule}"
    if isinstance(error, NamespaceNotFoundError):
        text = "Namespace not found"
    return f"{text.rstrip('.')}; {remedy}" if remedy else text


def wire_code(error: BaseException) -> pb.ServerError:
    """The `ServerError` that tells a client of `error`."""
    return next(WIRE_CODES[kind] for kind in type(error).__mro__ if kind in WIRE_CODES)

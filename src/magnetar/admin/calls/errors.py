"""Which HTTP status an error gets.

Source: Pulsar's admin API: 404 for what is not there, 409 for what is there or in use, 412 for illegal
names, 503 for what may work a little later.
"""

from __future__ import annotations

from typing import Final

from magnetar.auth.errors import AuthenticationError, AuthorizationError
from magnetar.base.errors import (
    DiskFullError,
    LogError,
    MagnetarError,
    MetadataError,
    StorageFailedError,
)
from magnetar.base.names import InvalidNameError, InvalidNamespaceNameError, InvalidTopicNameError
from magnetar.broker.errors import (
    BacklogQuotaHoldsError,
    BacklogQuotaRefusesError,
    ChecksumMismatchError,
    ConflictError,
    ConsumerAssignmentError,
    ConsumerBusyError,
    ConsumerNotFoundError,
    CoordinatorNotFoundError,
    EmptyNameError,
    EncryptionRequiredError,
    InvalidTopicError,
    NamespaceNotFoundError,
    NotAllowedError,
    PersistenceFailedError,
    PreconditionFailedError,
    ProducerBusyError,
    ProducerFencedError,
    RefusedError,
    ServiceNotReadyError,
    StoredQuotaError,
    SubscriptionNotFoundError,
    TooManyConnectionsError,
    TooManyTransactionsError,
    TopicNotFoundError,
    TopicTerminatedError,
    TransactionConflictError,
    TransactionNotFoundError,
    TransactionStateError,
    UnsupportedError,
    WrongConsumerError,
)
from magnetar.broker.ownership.place import TopicPlace
from magnetar.ledger.api import NoSuchEntryError, NoSuchLedgerError
from magnetar.managedlog.errors import CursorNotFoundError, LogNotFoundError, LogTerminatedError
from magnetar.metadata.store import BadVersionError, HasChildrenError, NotFoundError, StoreClosedError
from magnetar.schemas.errors import IncompatibleSchemaError, InvalidSchemaError
from magnetar.tiered.errors import ReadOnlyStoreError


class RequestError(MagnetarError):
    """The request itself is at fault, before the broker is asked."""

    def __init__(self, reason: str, *, remedy: str = "") -> None:
        """`reason`: in Pulsar's words where clients compare them; `remedy`: what to do, beside it."""
        super().__init__(reason)
        self.remedy = remedy


class ServedElsewhereError(MagnetarError):
    """The whole call belongs to another broker, where it is sent with status 307. Nothing is done yet."""

    def __init__(self, place: TopicPlace) -> None:
        assert place.urls is not None, "this broker serves it"
        super().__init__(f"broker {place.urls.broker_id} serves this")
        self.place = place


class BadRequestError(RequestError):
    """A body, number or parameter that cannot be read."""


class NotHereError(RequestError):
    """What the path names does not exist."""


class NotAcceptableError(RequestError):
    """A number out of its range (Pulsar answers 406 for partitions)."""


class ForbiddenError(RequestError):
    """A web page of another origin sent this."""


class MisdirectedError(RequestError):
    """The Host header names no address of this broker."""


class TooLargeError(RequestError):
    """The body is larger than any legal one."""


class TooSlowError(RequestError):
    """The body did not arrive in time."""


class TooMuchUsedError(RequestError):
    """The role has used more than it may."""

    def __init__(self, owner: str, rest_ms: int) -> None:
        self.rest_s = max(1, -(-rest_ms // 1_000))
        super().__init__(
            f"{owner} has used what commands_per_second_per_role or loop_percent_per_role allow it",
            remedy=f"call again in {self.rest_s} s, or have an operator raise the limit",
        )


class UnreadablePayloadError(RequestError):
    """A stored payload is not what its metadata says; only its producer could have made it so."""


class FewerPartitionsError(RequestError):
    """Partitions cannot be taken away (Pulsar answers 422)."""


class NotImplementedHereError(RequestError):
    """Part of Pulsar's API that this broker does not offer; the message names it."""


STATUSES: Final[dict[type[MagnetarError], int]] = {
    # The request itself:
    RequestError: 400,
    BadRequestError: 400,
    NotHereError: 404,
    NotAcceptableError: 406,
    ForbiddenError: 403,
    MisdirectedError: 421,
    TooLargeError: 413,
    TooSlowError: 408,
    TooMuchUsedError: 429,
    UnreadablePayloadError: 422,
    FewerPartitionsError: 422,
    NotImplementedHereError: 501,
    # Refusals of the broker:
    TopicNotFoundError: 404,
    SubscriptionNotFoundError: 404,
    ConsumerNotFoundError: 404,
    WrongConsumerError: 412,
    NamespaceNotFoundError: 404,
    ConflictError: 409,
    PreconditionFailedError: 412,
    TooManyConnectionsError: 429,
    ConsumerBusyError: 409,
    ProducerBusyError: 409,
    ProducerFencedError: 409,
    ServiceNotReadyError: 503,
    InvalidTopicError: 412,
    EmptyNameError: 412,
    NotAllowedError: 405,
    UnsupportedError: 501,
    TopicTerminatedError: 409,
    ChecksumMismatchError: 400,
    EncryptionRequiredError: 412,
    BacklogQuotaHoldsError: 412,
    BacklogQuotaRefusesError: 412,
    StoredQuotaError: 412,
    CoordinatorNotFoundError: 503,
    TransactionNotFoundError: 404,
    TransactionStateError: 409,
    TransactionConflictError: 409,
    TooManyTransactionsError: 429,
    PersistenceFailedError: 500,
    ConsumerAssignmentError: 400,
    # From below the broker, single classes and whole branches:
    InvalidNameError: 412,
    AuthenticationError: 401,
    AuthorizationError: 403,
    InvalidSchemaError: 422,
    IncompatibleSchemaError: 409,
    NoSuchEntryError: 404,
    NoSuchLedgerError: 404,
    LogNotFoundError: 404,
    CursorNotFoundError: 404,
    LogTerminatedError: 409,
    NotFoundError: 404,
    BadVersionError: 409,
    HasChildrenError: 409,
    StoreClosedError: 503,
    DiskFullError: 507,
    ReadOnlyStoreError: 409,
    StorageFailedError: 500,
    LogError: 500,
    MetadataError: 500,
    MagnetarError: 500,
}
"""HTTP status of each error; a class that is not here has its nearest base's."""


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
    """The status that tells a client of `error`; 503 for failures of ours that may be tried again."""
    status = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    return 503 if status == 500 and error.retriable and not isinstance(error, RefusedError) else status

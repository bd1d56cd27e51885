"""Maps errors to HTTP statuses.

Source: Pulsar's admin API: 404 for missing objects, 409 for existing ones or those in use, 412 for illegal
names, 503 when a retry may succeed.
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
from magnetar.functions.errors import FunctionError
from magnetar.functions.refusals import (
    DamagedPackageError,
    FunctionExistsError,
    FunctionNotFoundError,
    FunctionRefusedError,
    FunctionsFullError,
    InvalidConfigError,
    InvalidPackageNameError,
    NoWorkersError,
    PackageExistsError,
    PackageNotFoundError,
    PackagesFullError,
    PackageTooLargeError,
    TooManyOwnersError,
    UnchangedFunctionError,
)
from magnetar.ledger.api import NoSuchEntryError, NoSuchLedgerError
from magnetar.managedlog.errors import CursorNotFoundError, LogNotFoundError, LogTerminatedError
from magnetar.metadata.store import BadVersionError, HasChildrenError, NotFoundError, StoreClosedError
from magnetar.schemas.errors import IncompatibleSchemaError, InvalidSchemaError
from magnetar.sql.errors import SqlPackagesError, StatementError
from magnetar.sql.serving.serving_errors import QueriesBusyError, QueryFailedError
from magnetar.tiered.errors import ReadOnlyStoreError


class RequestError(MagnetarError):
    """The request itself is wrong."""

    def __init__(self, reason: str, *, remedy: str = "") -> None:
        """`reason`: cause, with Pulsar's text if clients compare it; `remedy`: next step."""
        super().__init__(reason)
        self.remedy = remedy


class ServedElsewhereError(MagnetarError):
    """The whole call belongs to another broker, to which status 307 redirects it. Nothing was done yet."""

    def __init__(self, place: TopicPlace) -> None:
        assert place.urls is not None, "this broker serves it"
        super().__init__(f"broker {place.urls.broker_id} serves this")
        self.place = place


class OtherBrokerError(RequestError):
    """Another broker refused its part of a call, or did not answer. `status`: HTTP status of the answer."""

    status = 503

    def __init__(self, status: int, reason: str, *, remedy: str = "") -> None:
        super().__init__(reason, remedy=remedy)
        self.status = status


class BadRequestError(RequestError):
    """A body, number or parameter cannot be read."""


class NotHereError(RequestError):
    """The object of the path does not exist."""


class NotAcceptableError(RequestError):
    """A number is out of its range (Pulsar answers 406 for partitions)."""


class ForbiddenError(RequestError):
    """A web page of another origin sent this."""


class MisdirectedError(RequestError):
    """The Host header names no address of this broker."""


class TooLargeError(RequestError):
    """The body is larger than any legal one."""


class TooSlowError(RequestError):
    """The body did not arrive in time."""


class TooMuchUsedError(RequestError):
    """The role has used more than its share."""

    def __init__(self, owner: str, rest_ms: int) -> None:
        self.rest_s = max(1, -(-rest_ms // 1_000))
        super().__init__(
            f"{owner} has used what commands_per_second_per_role or loop_percent_per_role allow it",
            remedy=f"call again in {self.rest_s} s, or have an operator raise the limit",
        )


class UnreadablePayloadError(RequestError):
    """A stored payload does not match its metadata, because its producer wrote it so."""


class FewerPartitionsError(RequestError):
    """The number of partitions cannot be reduced (Pulsar answers 422)."""


class NotImplementedHereError(RequestError):
    """The broker does not offer this part of Pulsar's API; the message names it."""


STATUSES: Final[dict[type[MagnetarError], int]] = {
    # The request itself:
    RequestError: 400,
    OtherBrokerError: 503,
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
    # SQL:
    QueriesBusyError: 503,
    StatementError: 400,
    SqlPackagesError: 501,
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
    # Of functions; 400 where Pulsar answers so:
    FunctionError: 500,
    FunctionRefusedError: 400,
    InvalidConfigError: 400,
    FunctionExistsError: 400,
    TooManyOwnersError: 400,
    UnchangedFunctionError: 400,
    FunctionNotFoundError: 404,
    FunctionsFullError: 412,
    InvalidPackageNameError: 412,
    PackageExistsError: 409,
    PackageNotFoundError: 404,
    PackageTooLargeError: 413,
    PackagesFullError: 507,
    DamagedPackageError: 500,
    NoWorkersError: 503,
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
"""HTTP status by class; another class has the status of its nearest base."""


def words_of(error: MagnetarError, path: str) -> tuple[str, str]:
    """The reason and the remedy in the answer for `error`; the reason has Pulsar's text if clients compare
    it.

    `path`: path template of the route, since Pulsar's text for a missing namespace differs when the path
    names a topic.
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
    """HTTP status for `error`; 503 for our failures that may be tried again."""
    if isinstance(error, OtherBrokerError | QueryFailedError):
        return error.status
    status = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    return 503 if status == 500 and error.retriable and not isinstance(error, RefusedError) else status

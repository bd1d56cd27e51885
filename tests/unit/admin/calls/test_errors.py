"""Every error has a status."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from magnetar.admin.calls.errors import status_of
from magnetar.admin.routes import all_routes
from magnetar.base.errors import DiskFullError, MagnetarError, StorageFailedError
from magnetar.base.names import InvalidTopicNameError
from magnetar.broker.errors import ServiceNotReadyError, TopicNotFoundError
from magnetar.ledger.api import NoSuchEntryError
from magnetar.managedlog.errors import LogClosedError, LogNotFoundError, LogTerminatedError
from magnetar.metadata.store import BadVersionError, StoreClosedError
from magnetar.observability.metrics import Registry
from magnetar.tiered.errors import ReadOnlyStoreError


def subclasses(of: type[MagnetarError]) -> Iterator[type[MagnetarError]]:
    for child in of.__subclasses__():
        yield child
        yield from subclasses(child)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TopicNotFoundError("x"), 404),
        (ServiceNotReadyError("x"), 503),
        (InvalidTopicNameError("x", "y"), 412),
        (NoSuchEntryError(1, 2), 404),
        (LogNotFoundError("x"), 404),
        (LogTerminatedError("x"), 409),
        (LogClosedError("x"), 503),
        (BadVersionError("x", 1, 2), 409),
        (StoreClosedError("x"), 503),
        (DiskFullError("x"), 507),
        (ReadOnlyStoreError("s3://x", "another installation has it"), 409),
        (StorageFailedError("x"), 500),
        (MagnetarError("x"), 500),
    ],
)
def test_statuses(error: MagnetarError, status: int) -> None:
    assert status_of(error) == status


def test_no_error_is_a_success() -> None:
    all_routes(Registry())  # imports every room
    for kind in subclasses(MagnetarError):
        error = kind.__new__(kind)
        assert 400 <= status_of(error) <= 599, kind


def test_routes_are_unique() -> None:
    routes = [(method, path) for method, path, _ in all_routes(Registry())]
    assert len(routes) == len(set(routes))

"""Every refusal has a wire code and an HTTP status, and errors from below are translated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from magnetar.base.errors import DiskFullError, LedgerError, LogError, MetadataError, StorageError
from magnetar.base.names import InvalidTopicNameError, TopicName
from magnetar.broker.errors import RefusedError, wire_code
from magnetar.wire import pulsar_pb2 as pb


def refusals(base: type[RefusedError] = RefusedError) -> Iterator[type[RefusedError]]:
    for each in base.__subclasses__():
        yield each
        yield from refusals(each)


@pytest.mark.parametrize("refusal", list(refusals()), ids=lambda each: each.__name__)
def test_each_refusal_says_its_own_code(refusal: type[RefusedError]) -> None:
    assert "code" in vars(refusal)
    assert "http_status" in vars(refusal)
    assert wire_code(refusal("why")) == refusal.code
    assert refusal.code in pb.ServerError.values()
    assert 400 <= refusal.http_status < 600


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DiskFullError("x"), pb.PersistenceError),
        (StorageError("x"), pb.PersistenceError),
        (LedgerError("x"), pb.PersistenceError),
        (LogError("x"), pb.PersistenceError),
        (MetadataError("x"), pb.MetadataError),
        (RuntimeError("x"), pb.UnknownError),
    ],
)
def test_errors_from_below_are_translated(error: Exception, code: int) -> None:
    assert wire_code(error) == code


def test_a_bad_name_is_told_as_such() -> None:
    with pytest.raises(InvalidTopicNameError) as caught:
        TopicName.parse("nonsense://a/b/c")
    assert wire_code(caught.value) == pb.InvalidTopicName

"""Errors from below the broker are translated."""

from __future__ import annotations

import pytest

from magnetar.base.errors import DiskFullError, LedgerError, LogError, MetadataError, StorageError
from magnetar.base.names import InvalidTopicNameError, TopicName
from magnetar.broker.errors import TopicNotFoundError, wire_code
from magnetar.broker.watchers.pattern import PatternError
from magnetar.wire import pulsar_pb2 as pb


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DiskFullError("x"), pb.PersistenceError),
        (StorageError("x"), pb.PersistenceError),
        (LedgerError("x"), pb.PersistenceError),
        (LogError("x"), pb.PersistenceError),
        (MetadataError("x"), pb.MetadataError),
        (TopicNotFoundError("x"), pb.TopicNotFound),
        (PatternError("x"), pb.InvalidTopicName),
        (RuntimeError("x"), pb.UnknownError),
    ],
)
def test_errors_from_below_are_translated(error: Exception, code: int) -> None:
    assert wire_code(error) == code


def test_a_bad_name_is_told_as_such() -> None:
    with pytest.raises(InvalidTopicNameError) as caught:
        TopicName.parse("nonsense://a/b/c")
    assert wire_code(caught.value) == pb.InvalidTopicName

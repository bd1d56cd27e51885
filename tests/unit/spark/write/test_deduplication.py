"""What a sink does when the admin interface is away while it asks for deduplication."""

from __future__ import annotations

from typing import Any, cast

import pytest

from magnetar.adminclient.errors import AdminCallError, AdminRefusedError, AdminUnreachableError
from magnetar.base.names import TopicName
from magnetar.client.client import Client, ClientOptions
from magnetar.spark.errors import DeduplicationError, OptionError
from magnetar.spark.write import deduplication
from magnetar.spark.write.commit_log import CommitLog
from magnetar.spark.write.sink import Batch, Sink

TOPIC = TopicName.parse("persistent://public/default/t")


class _Admin:
    def __init__(self, error: AdminCallError) -> None:
        self._error = error

    def stats(self, topic: TopicName) -> dict[str, Any]:
        raise self._error


class _Client:
    def __init__(self, error: AdminCallError) -> None:
        self.admin = _Admin(error)


class _Producer:
    def __init__(self, client: Client, topic: TopicName) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "is_retriable"),
    [
        (AdminUnreachableError("http://a", "the end closed the connection", "is it running?"), True),
        (AdminRefusedError("POST", "/deduplicationEnabled", 403, "no permission"), False),
    ],
)
def test_an_interface_that_is_away_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, error: AdminCallError, is_retriable: bool
) -> None:
    """Whether the commit of a batch is repeated is for the error to say."""
    monkeypatch.setattr(deduplication, "target_partitions", lambda client, target: {0: TOPIC})
    monkeypatch.setattr(deduplication, "Producer", _Producer)
    with pytest.raises(OptionError, match="Give admin") as raised:
        deduplication.deduplicate(cast("Client", _Client(error)), TOPIC)
    assert raised.value.retriable is is_retriable


class _AwaySink(Sink):
    """Its first commit meets an interface that is away, or that refuses."""

    def __init__(self, *, retriable: bool) -> None:
        self._client = cast("Client", _Away())
        self._log = cast("CommitLog", _Producer(self._client, TOPIC))
        self.left = [DeduplicationError("away", retriable=retriable)]
        self.commits = 0

    def _commit(self, batch: Batch) -> None:
        self.commits += 1
        if self.left:
            raise self.left.pop()


class _Away:
    options = ClientOptions()


def test_a_commit_is_repeated_when_the_interface_was_away() -> None:
    """A broker that was killed between two calls of the admin interface ended the query."""
    sink = _AwaySink(retriable=True)
    sink.commit(Batch(1, ()))
    assert sink.commits == 2
    with pytest.raises(DeduplicationError):
        _AwaySink(retriable=False).commit(Batch(1, ()))

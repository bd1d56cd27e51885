"""What a sink does when the admin interface is away while it asks for deduplication."""

from __future__ import annotations

from typing import Any, cast

import pytest

from magnetar.adminclient.errors import AdminCallError, AdminRefusedError, AdminUnreachableError
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.spark.errors import OptionError
from magnetar.spark.write import deduplication

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
    """The commit of a batch is repeated for errors that are retriable; a broker that was killed between two
    calls ended the query before."""
    monkeypatch.setattr(deduplication, "target_partitions", lambda client, target: {0: TOPIC})
    monkeypatch.setattr(deduplication, "Producer", _Producer)
    with pytest.raises(OptionError, match="Give admin") as raised:
        deduplication.deduplicate(cast("Client", _Client(error)), TOPIC)
    assert raised.value.retriable is is_retriable

"""Which brokers are asked how far readers get."""

from __future__ import annotations

from typing import Any, cast

import pytest

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.tables import log_state as module
from magnetar.tables.log_state import log_state

TOPIC = TopicName.parse("t")
APACHE = {"lastConfirmedEntry": "9:19", "ledgers": [{"ledgerId": 9, "entries": 20, "size": 20}]}


class Broker:
    """Answers `internalStats`, and names the last message to clients."""

    def __init__(self, stats: dict[str, Any], last: Position, monkeypatch: pytest.MonkeyPatch) -> None:
        self.admin = self
        self.asked = 0
        self._stats = stats
        self._last = last
        monkeypatch.setattr(module, "last_position", self.last_position)

    def internal_stats(self, topic: TopicName) -> dict[str, Any]:
        assert topic == TOPIC
        return self._stats

    def last_position(self, client: object, topic: TopicName) -> Position:
        assert (client, topic) == (self, TOPIC)
        self.asked += 1
        return self._last


def test_apaches_brokers_are_asked_for_the_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(APACHE, Position(9, 7), monkeypatch)
    assert log_state(cast("Client", broker), TOPIC).end == Position(9, 8)


@pytest.mark.parametrize(
    ("told", "end"), [({}, Position(9, 20)), ({"maxReadPosition": "9:4"}, Position(9, 5))]
)
def test_ours_say_it_in_their_statistics(
    told: dict[str, str], end: Position, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker({**APACHE, "firstIndex": 0, **told}, Position(9, 7), monkeypatch)
    assert log_state(cast("Client", broker), TOPIC).end == end
    assert not broker.asked

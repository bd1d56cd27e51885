"""Which TLS handshakes give way when there are too many."""

from __future__ import annotations

import pytest

from magnetar.bookie.network import handshakes
from magnetar.bookie.network.handshakes import Handshakes

MAX = 4


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKES_MAX", MAX)


class Client:
    """A connection that remembers whether it was closed."""

    def __init__(self, address: str) -> None:
        self.peer = f"{address}:1000"
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def full(of: Handshakes, address: str) -> list[Client]:
    clients = [Client(address) for _ in range(MAX)]
    assert all(of.begin(client, 0.0) for client in clients)
    return clients


def test_the_newest_of_an_address_with_young_ones_is_refused() -> None:
    under_way = Handshakes()
    first = full(under_way, "10.0.0.1")
    refused = Client("10.0.0.1")
    assert not under_way.begin(refused, 0.9)
    assert refused.is_closed
    assert not any(client.is_closed for client in first)
    assert len(under_way) == MAX


def test_an_old_one_gives_way() -> None:
    under_way = Handshakes()
    first = full(under_way, "10.0.0.1")
    assert under_way.begin(Client("10.0.0.1"), 1.0)
    assert [client.is_closed for client in first] == [True, False, False, False]
    assert len(under_way) == MAX


def test_an_address_with_few_finds_a_place_at_once_and_each_ends_another_one() -> None:
    under_way = Handshakes()
    first = full(under_way, "fe80::1")
    assert all(under_way.begin(Client(f"10.0.0.{number}"), 0.0) for number in range(2))
    assert [client.is_closed for client in first] == [True, True, False, False]


def test_what_has_ended_has_no_place() -> None:
    under_way = Handshakes()
    first = full(under_way, "10.0.0.1")
    under_way.end(first[2])
    under_way.end(first[2])
    assert under_way.begin(Client("10.0.0.1"), 0.0)
    assert not any(client.is_closed for client in first)

"""Connections whose client has not authenticated yet."""

from __future__ import annotations

import pytest

from magnetar.broker.session import greetings
from magnetar.broker.session.greetings import Greetings
from support.sessions import Peer, Type, World, command, in_world


class Guest:
    def __init__(self) -> None:
        self.dropped = ""

    def abort(self, reason: str) -> None:
        self.dropped = reason


def test_who_says_nothing_is_dropped_in_time_and_others_stay() -> None:
    waiting = Greetings(3)
    silent, greeting, late = Guest(), Guest(), Guest()
    waiting.came(silent)
    waiting.came(greeting)
    waiting.ended(greeting)
    waiting.look()
    waiting.came(late)
    for _ in range(2):
        waiting.look()
    assert [guest.dropped for guest in (silent, late, greeting)] == ["", "", ""]
    waiting.look()
    assert [guest.dropped for guest in (silent, late, greeting)] == ["no CONNECT in time", "", ""]
    assert len(waiting) == 1
    assert waiting.dropped == 1


def test_the_oldest_goes_for_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greetings, "_WAITING_MAX", 2)
    waiting = Greetings(10)
    guests = [Guest() for _ in range(4)]
    for guest in guests:
        waiting.came(guest)
    assert [bool(guest.dropped) for guest in guests] == [True, True, False, False]
    assert waiting.drop_oldest()
    assert guests[2].dropped
    waiting.ended(guests[3])
    assert not waiting.drop_oldest()


def test_of_unfinished_greetings_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greetings, "_KEPT_BYTES_MAX", 100)
    waiting = Greetings(10)
    one, other = Guest(), Guest()
    waiting.came(one)
    waiting.came(other)
    assert waiting.keep(one, 40)
    assert waiting.keep(one, 80)
    assert not waiting.keep(other, 30)
    waiting.ended(one)
    assert waiting.keep(other, 90)
    waiting.ended(other)
    assert waiting.keep(Guest(), 1)


def test_a_large_connect_is_refused() -> None:
    async def story(world: World) -> None:
        peer = Peer(world)
        peer.send(command(Type.CONNECT, client_version="x" * (greetings.CONNECT_BYTES_MAX + 1)))
        await world.until(lambda: peer.closed, "closed")
        assert peer.closed is not None
        assert "CONNECT of more than" in peer.closed

    in_world(story)

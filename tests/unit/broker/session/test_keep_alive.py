"""Which clients are pinged, and which are given up."""

from __future__ import annotations

from magnetar.base.machine import Machine
from magnetar.broker.session.keep_alive import KeepAlive, Liveness
from magnetar.broker.session.session_states import TRANSITIONS, SessionState
from support.tables import unreachable


def test_a_silent_client_is_pinged_and_then_given_up() -> None:
    client = KeepAlive()
    assert client.look(connected=True, unread=False) is Liveness.THERE
    assert client.look(connected=True, unread=False) is Liveness.PING
    assert client.look(connected=True, unread=False) is Liveness.DEAD
    client.answered()
    client.heard = True
    assert client.look(connected=True, unread=False) is Liveness.THERE
    assert client.look(connected=True, unread=True) is Liveness.THERE


def test_who_did_not_greet_is_not_pinged() -> None:
    client = KeepAlive()
    client.look(connected=False, unread=False)
    assert client.look(connected=False, unread=False) is Liveness.NOT_GREETED


def test_every_state_of_a_session_can_be_reached_and_it_ends() -> None:
    assert unreachable(TRANSITIONS, SessionState.SILENT) == set()
    assert [state for state, after in TRANSITIONS.items() if not after] == [SessionState.GONE]
    assert not Machine("session", TRANSITIONS, SessionState.SILENT).may(SessionState.CONNECTED)

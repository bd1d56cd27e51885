"""States that change along a table, and the story that a wrong change tells."""

from __future__ import annotations

from enum import Enum

import pytest

from magnetar.base.machine import STORY_LENGTH, InvalidTransitionError, Machine
from support.tables import unreachable


class Door(Enum):
    SHUT = "shut"
    OPEN = "open"
    LOCKED = "locked"


TABLE = {
    Door.SHUT: frozenset({Door.OPEN, Door.LOCKED}),
    Door.OPEN: frozenset({Door.SHUT}),
    Door.LOCKED: frozenset[Door](),
}


def test_a_state_goes_along_the_table() -> None:
    door = Machine("the door", TABLE, Door.SHUT)
    assert door.may(Door.OPEN)
    door.go(Door.OPEN, "somebody knocks")
    assert door.now is Door.OPEN
    assert not door.may(Door.LOCKED)
    assert repr(door) == "Machine('the door', OPEN)"


def test_a_wrong_change_tells_the_story_and_changes_nothing() -> None:
    door = Machine("the door", TABLE, Door.SHUT)
    door.go(Door.OPEN, "somebody knocks")
    with pytest.raises(InvalidTransitionError) as raised:
        door.go(Door.LOCKED, "night falls")
    assert door.now is Door.OPEN
    assert str(raised.value) == (
        "the door cannot go from OPEN to LOCKED (night falls);"
        " before that: SHUT (begins), OPEN (somebody knocks)"
    )
    assert (raised.value.before, raised.value.after) == (Door.OPEN, Door.LOCKED)


def test_the_story_is_bounded() -> None:
    door = Machine("the door", TABLE, Door.SHUT)
    for number in range(STORY_LENGTH):
        door.go(Door.OPEN, f"opens {number}")
        door.go(Door.SHUT, f"shuts {number}")
    assert door.story.count(",") == STORY_LENGTH - 1
    assert door.story.endswith(f"OPEN (opens {STORY_LENGTH - 1}), SHUT (shuts {STORY_LENGTH - 1})")
    assert "opens 3" not in door.story


def test_a_table_names_every_state() -> None:
    with pytest.raises(AssertionError, match="every state"):
        Machine("the door", {Door.SHUT: frozenset[Door]()}, Door.OPEN)


def test_states_that_nothing_leads_to_are_found() -> None:
    assert unreachable(TABLE, Door.SHUT) == set()
    assert unreachable(TABLE, Door.LOCKED) == {Door.SHUT, Door.OPEN}

"""The state of one thing, which changes along a table only (pure).

A change that the table does not have is a bug of ours. The error names the thing and tells its story: the
states that it went through, each with the reason that was given. What a log says about the last seconds of a
thing is rarely enough to find out how it came where it should never be.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import Enum
from typing import Final, Generic, TypeVar

S = TypeVar("S", bound=Enum)

STORY_LENGTH: Final = 8
"""Changes that are remembered. Each takes 16 bytes, of every thing that has a state."""

Transitions = Mapping[S, Set[S]]
"""For each state the states that may follow it; an empty set for the last ones."""


class InvalidTransitionError(AssertionError):
    """A state that cannot follow the present one. No MagnetarError: it is a bug, which no caller handles."""

    def __init__(self, name: str, before: Enum, after: Enum, why: str, story: str) -> None:
        super().__init__(f"{name} cannot go from {before.name} to {after.name} ({why}); before that: {story}")
        self.name = name
        self.before = before
        self.after = after
        self.story = story


class Machine(Generic[S]):
    """A state, its table of transitions and its story."""

    __slots__ = ("_name", "_story", "_table", "now")

    now: S
    """The state. Only `go` changes it."""

    def __init__(self, name: str, table: Transitions[S], begin: S) -> None:
        """`name` tells which thing it is, for people; `begin` is the first state."""
        assert begin in table, "the table names every state"
        self.now = begin
        self._name = name
        self._table = table
        self._story: tuple[Enum | str, ...] = (begin, "begins")

    def __repr__(self) -> str:
        return f"Machine({self._name!r}, {self.now.name})"

    @property
    def name(self) -> str:
        """Which thing it is."""
        return self._name

    @property
    def story(self) -> str:
        """The last states with the reason of each change, for people."""
        pairs = zip(self._story[::2], self._story[1::2], strict=True)
        return ", ".join(f"{state.name} ({why})" for state, why in pairs if isinstance(state, Enum))

    def may(self, state: S) -> bool:
        """Whether this state can follow the present one."""
        return state in self._table[self.now]

    def go(self, state: S, why: str) -> None:
        """Changes the state; `why` is for people. Raises InvalidTransitionError; then nothing has changed.

        Cost: 0.3 us. For what happens per message a state is not the right means.
        """
        if state not in self._table[self.now]:
            raise InvalidTransitionError(self._name, self.now, state, why, self.story)
        self.now = state
        self._story = (*self._story[2 - 2 * STORY_LENGTH :], state, why)

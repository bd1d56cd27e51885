"""A state that may only change by the transitions of a table (pure).

Another transition is a bug. The error names the object and its last states, each with the reason of the
change, because logs rarely show how an object came into a wrong state.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import Enum
from typing import Final, Generic, TypeVar

S = TypeVar("S", bound=Enum)

STORY_LENGTH: Final = 8
"""Number of remembered changes. Each takes 16 bytes in every object with a state."""

Transitions = Mapping[S, Set[S]]
"""For each state the states that may follow it; an empty set for final states."""


class InvalidTransitionError(AssertionError):
    """A state cannot follow the present one. Not a MagnetarError: it is a bug, which no caller handles."""

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
        """`name`: name of the object in errors; `table`: the transitions; `begin`: the first state."""
        assert begin in table, "the table names every state"
        self.now = begin
        self._name = name
        self._table = table
        self._story: tuple[Enum | str, ...] = (begin, "begins")

    def __repr__(self) -> str:
        return f"Machine({self._name!r}, {self.now.name})"

    @property
    def name(self) -> str:
        """Name of the object in errors."""
        return self._name

    @property
    def story(self) -> str:
        """The last states with the reason of each change, as text for errors and logs."""
        pairs = zip(self._story[::2], self._story[1::2], strict=True)
        return ", ".join(f"{state.name} ({why})" for state, why in pairs if isinstance(state, Enum))

    def may(self, state: S) -> bool:
        """Whether this state can follow the present one."""
        return state in self._table[self.now]

    def go(self, state: S, why: str) -> None:
        """Changes the state. `why`: the reason, shown in errors. Raises InvalidTransitionError and then
        changes nothing.

        Costs 0.3 µs: do not use it per message.
        """
        if state not in self._table[self.now]:
            raise InvalidTransitionError(self._name, self.now, state, why, self.story)
        self.now = state
        self._story = (*self._story[2 - 2 * STORY_LENGTH :], state, why)

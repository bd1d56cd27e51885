"""The state as functions see it: what is stored, with the changes that are not stored yet (pure).

Changes of entries are stored when their outputs are, in the order of the entries. Until then a later call
must see them: they are kept here by key, and dropped when none of them is open.
"""

from __future__ import annotations

from typing import Protocol

from magnetar.functions.ports import StateValue
from magnetar.functions.state.state_change import StateChange, StateChanges, merge


class StoredState(Protocol):
    """What is stored."""

    def get(self, key: str) -> StateValue | None:
        """The value of a key; None when there is none."""
        ...


class PendingState:
    """The state of one instance."""

    def __init__(self, stored: StoredState) -> None:
        self._stored = stored
        self._open: StateChanges = {}
        """Changes that are not stored, merged by key."""
        self._counts: dict[str, int] = {}
        """How many sets of changes that are not stored have the key."""

    def value(self, key: str) -> bytes | None:
        """The value after all calls that have ended well; None: none."""
        stored = self._stored.get(key)
        value = None if stored is None else stored.value
        change = self._open.get(key)
        return value if change is None else change.applied_to(value)

    def take(self, changes: StateChanges, into: StateChanges) -> None:
        """A call has ended well: adds its changes to those of its entry."""
        for key in changes:
            if key not in into:
                self._counts[key] = self._counts.get(key, 0) + 1
        merge(self._open, changes)
        merge(into, changes)

    def stored(self, changes: StateChanges) -> None:
        """The changes of an entry are stored now. Entries are stored in the order of their calls."""
        for key, change in changes.items():
            left = self._counts[key] - 1
            if left:
                self._counts[key] = left
                self._open[key] = _rest(self._open[key], change)
            else:
                del self._counts[key], self._open[key]

    def clear(self) -> None:
        """Forgets what is not stored: its entries will be delivered again."""
        self._open.clear()
        self._counts.clear()


def _rest(all_of_them: StateChange, first: StateChange) -> StateChange:
    """What the later changes do to the value that the first one left."""
    if all_of_them.replaces and not (first.replaces and all_of_them.value == first.value):
        return all_of_them
    return StateChange(added=all_of_them.added - first.added)

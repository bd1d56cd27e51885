"""The states of a topic's name, and the transitions between them (pure)."""

from __future__ import annotations

from enum import Enum
from typing import Final


class TopicState(Enum):
    """The state of one name, in this process."""

    ABSENT = "absent"
    """There is no object of it; the topic may exist in storage."""
    LOADING = "loading"
    """Its log is being opened. Only the flight has the object."""
    LOADED = "loaded"
    """It serves clients."""
    FAILED = "failed"
    """It detached its clients, as its log failed; the next use closes it and loads it again."""
    UNLOADING = "unloading"
    """It is made durable and closed; no client attaches any more."""
    DELETING = "deleting"
    """It is deleted with its data."""


TRANSITIONS: Final[dict[TopicState, frozenset[TopicState]]] = {
    TopicState.ABSENT: frozenset({TopicState.LOADING, TopicState.DELETING}),
    TopicState.LOADING: frozenset({TopicState.LOADED, TopicState.ABSENT}),
    TopicState.LOADED: frozenset({TopicState.FAILED, TopicState.UNLOADING, TopicState.DELETING}),
    TopicState.FAILED: frozenset({TopicState.UNLOADING, TopicState.DELETING}),
    TopicState.UNLOADING: frozenset({TopicState.ABSENT}),
    TopicState.DELETING: frozenset({TopicState.ABSENT}),
}

IN_FLIGHT: Final = frozenset({TopicState.LOADING, TopicState.UNLOADING, TopicState.DELETING})
"""States that work is under way in: a name has one piece of work at a time, and others wait for its end."""

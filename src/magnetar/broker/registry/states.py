"""What a topic's name can stand for, and the ways between (pure)."""

from __future__ import annotations

from enum import Enum
from typing import Final


class TopicState(Enum):
    """Of one name, in this process."""

    ABSENT = "absent"
    """There is no object of it; the topic may exist in storage."""
    LOADING = "loading"
    """Its log is being opened. Nobody but the flight has the object."""
    LOADED = "loaded"
    """It serves clients."""
    FAILED = "failed"
    """It sent its clients away, as its log keeps nothing; whoever asks for it closes it and loads it anew."""
    UNLOADING = "unloading"
    """It is made durable and closed; nobody attaches to it any more."""
    DELETING = "deleting"
    """It goes with its data."""


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

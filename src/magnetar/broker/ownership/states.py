"""What a bundle can be to one broker, and the ways between (pure)."""

from __future__ import annotations

from enum import Enum
from typing import Final


class BundleState(Enum):
    """The state of one bundle, in this process."""

    UNOWNED = "unowned"
    """This broker does not have it; another one may."""
    CLAIMING = "claiming"
    """Its record is being created, and what is there besides is being read."""
    OWNED = "owned"
    """Its record is there, in the session that lasts: topics may be loaded."""
    RELEASING = "releasing"
    """Its topics are made durable and closed; then its record goes."""
    LOST = "lost"
    """The record is gone or another broker's, or the session has ended: its topics are being closed."""


TRANSITIONS: Final[dict[BundleState, frozenset[BundleState]]] = {
    BundleState.UNOWNED: frozenset({BundleState.CLAIMING}),
    BundleState.CLAIMING: frozenset({BundleState.OWNED, BundleState.UNOWNED}),
    BundleState.OWNED: frozenset({BundleState.RELEASING, BundleState.LOST}),
    BundleState.RELEASING: frozenset({BundleState.UNOWNED, BundleState.LOST}),
    BundleState.LOST: frozenset({BundleState.UNOWNED}),
}

"""The rules by which a broker becomes an owner and ceases to be one (pure).

They are handed to `Owners` as an object, so that the simulator can hand in broken ones and show that each is
needed (`sim/owners/mutations.py`).
"""

from __future__ import annotations

from typing import Final

from magnetar.broker.ownership.ownership_effects import Close, Delete, Effect
from magnetar.broker.ownership.states import BundleState


class OwnershipRules:
    """What makes an owner, and what ends it."""

    __slots__ = ()

    def ends_with_session(self) -> bool:
        """Whether every bundle is lost in the turn in which the session ends. Its records went with it, and
        another broker may have claimed them already."""
        return True

    def at_release(self, close: Close, delete: Delete) -> list[Effect]:
        """What happens at once when a bundle is given up: its topics are closed. The record follows when they
        are: a successor would find topics that are still served here."""
        return [close]

    def loses_without_record(self, state: BundleState, *, closed: bool) -> bool:
        """Whether a bundle in this state is lost when its record is gone, or another broker's. `closed`: all
        its topics are closed already, so there is nothing to lose."""
        return state is BundleState.OWNED or (state is BundleState.RELEASING and not closed)

    def must_be_alone(self) -> bool:
        """Whether a claim is taken back where another owned bundle overlaps it. Two records of overlapping
        bundles have different keys: the store alone keeps neither out."""
        return True

    def looks_again(self) -> bool:
        """Whether the record is read once more when it has made an owner. While a bundle was being claimed,
        what became of its record was not listened to."""
        return True


OWNERSHIP_RULES: Final = OwnershipRules()

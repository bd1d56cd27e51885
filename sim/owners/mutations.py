"""Rules of ownership, each with a way to break it.

One rule is not here, because breaking it alone loses nothing: that an answer to a claim of a former session
makes no owner. The look at the record after each claim finds out.
"""

from __future__ import annotations

from typing import Any, Final

from magnetar.broker.ownership.ownership_effects import Close, Delete, Effect
from magnetar.broker.ownership.ownership_rules import OwnershipRules
from magnetar.broker.ownership.states import BundleState
from sim.breaking import Mutation
from sim.owners.bookies import SimBookies
from sim.owners.broker import SimBroker
from sim.rules import RulesInForce


class _GoesOn(OwnershipRules):
    """Nothing is lost: records are believed to be there."""

    def ends_with_session(self) -> bool:
        return False


class _RecordFirst(OwnershipRules):
    def at_release(self, close: Close, delete: Delete) -> list[Effect]:
        return [delete, close]


class _Blind(OwnershipRules):
    """Whose the record is does not matter."""

    def loses_without_record(self, state: BundleState, *, closed: bool) -> bool:
        return False


class _AlwaysAlone(OwnershipRules):
    def must_be_alone(self) -> bool:
        return False


class _Believes(OwnershipRules):
    """The claim was answered, so the record is there."""

    def looks_again(self) -> bool:
        return False


def _no_fence(self: SimBookies, topic: str, opening: int, payload: int) -> None:
    self.topics[topic].entries.append((opening, payload))


def _lenient(self: Any) -> None:
    """Its own check would find some of it at once."""


_UNCHECKED: Final = (SimBroker, "check", _lenient)

OWNER_MUTATIONS: Final = {
    "session-loss": Mutation(
        "the end of the session loses every bundle in the same turn",
        [(RulesInForce, "ownership", _GoesOn()), _UNCHECKED],
        found_by=3,
        scenario="owners",
    ),
    "record-last": Mutation(
        "a record goes only after the topics of the bundle are closed",
        [(RulesInForce, "ownership", _RecordFirst())],
        found_by=21,
        scenario="owners",
    ),
    "record-gone": Mutation(
        "a record that is gone is a lost bundle",
        [(RulesInForce, "ownership", _Blind())],
        found_by=2,
        scenario="owners",
    ),
    "alone": Mutation(
        "a claim is finished when nothing overlaps it",
        [(RulesInForce, "ownership", _AlwaysAlone()), _UNCHECKED],
        found_by=40,
        scenario="owners",
    ),
    "look-after-claim": Mutation(
        "a record is looked at once more when it has made an owner",
        [(RulesInForce, "ownership", _Believes())],
        found_by=32,
        scenario="owners",
    ),
    "fence": Mutation(
        "a broker that opens a log fences the former owner: ownership alone is not enough",
        [(SimBookies, "append", _no_fence)],
        found_by=15,
        scenario="owners",
    ),
}

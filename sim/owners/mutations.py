"""Rules of ownership, each with a way to break it.

One rule is not here, because breaking it alone loses nothing: that an answer to a claim of a former session
makes no owner. The look at the record after each claim finds out.
"""

from __future__ import annotations

from typing import Any, Final

from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.claims import Claims
from magnetar.broker.ownership.ownership import Close, Delete, Effect, Ownership
from magnetar.broker.ownership.states import BundleState
from sim.breaking import Mutation
from sim.owners.bookies import SimBookies


def _goes_on(self: Ownership) -> list[Effect]:
    """Nothing is lost: records are believed to be there."""
    self.session = 0
    return []


def _record_first(self: Ownership, bundle: Bundle, to: str = "") -> list[Effect]:
    held = self._held.get(bundle)
    if held is None or held.state is not BundleState.OWNED:
        return []
    self._turn(bundle, held, BundleState.RELEASING)
    return [Delete(bundle, held.session), Close(bundle, lost=False, to=to)]


def _blind(self: Ownership, bundle: Bundle, session: int) -> list[Effect]:
    """Whose the record is does not matter."""
    return []


async def _always_alone(self: Claims, bundle: Bundle) -> bool:
    return True


async def _believes(self: Claims, bundle: Bundle) -> None:
    """The claim was answered, so the record is there."""


def _no_fence(self: SimBookies, topic: str, opening: int, payload: int) -> None:
    self.topics[topic].entries.append((opening, payload))


def _lenient(self: Any) -> None:
    """Its own check would find some of it at once."""


_UNCHECKED: Final = (Ownership, "check", _lenient)

OWNER_MUTATIONS: Final = {
    "session-loss": Mutation(
        "the end of the session loses every bundle in the same turn",
        [(Ownership, "session_lost", _goes_on), _UNCHECKED],
        found_by=3,
        scenario="owners",
    ),
    "record-last": Mutation(
        "a record goes only after the topics of the bundle are closed",
        [(Ownership, "release", _record_first)],
        found_by=21,
        scenario="owners",
    ),
    "record-gone": Mutation(
        "a record that is gone is a lost bundle",
        [(Ownership, "record_gone", _blind)],
        found_by=2,
        scenario="owners",
    ),
    "alone": Mutation(
        "a claim is finished when nothing overlaps it",
        [(Claims, "_is_alone", _always_alone), _UNCHECKED],
        found_by=40,
        scenario="owners",
    ),
    "look-after-claim": Mutation(
        "a record is looked at once more when it has made an owner",
        [(Claims, "_look_once_more", _believes)],
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

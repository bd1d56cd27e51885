"""Which bundles this broker has: the decisions (pure).

Theory of operation. Events come in as calls: a bundle is wanted, an answer of the metadata store,
the end of a session. What is to be done comes out as effects, which the driver carries out in the order in
which they come. Sessions have numbers, counted by the driver; each claim carries the number of the session in
which it was made.

Rules (`ownership_rules.py`), each with a mutant in `sim/owners/mutations.py`, but for the first, whose breach
the driver notices:
1. An answer to a claim of a former session makes no owner: the record goes with its session.
2. When the session ends, every bundle is lost in the same turn.
3. A record goes only after the topics of the bundle are closed.
4. A record that is gone, or another broker's, is a lost bundle.
5. A claim is finished when nothing overlaps it; else it is taken back.

What keeps two owners from acknowledging messages is none of these rules but the fence of the ledgers: see
docs/decisions/0030-many-brokers.md.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Iterator

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.ownership_effects import Claim, Close, Delete, Effect
from magnetar.broker.ownership.ownership_rules import OWNERSHIP_RULES, OwnershipRules
from magnetar.broker.ownership.states import TRANSITIONS, BundleState
from magnetar.broker.policies.bundles import covers, hash_of


class _Held:
    """A bundle that is not unowned."""

    __slots__ = ("closed", "session", "state")

    def __init__(self, session: int) -> None:
        self.state = BundleState.CLAIMING
        self.session = session
        self.closed = False
        """For a bundle that is being released: whether its topics are closed."""


def _start_of(bundle: Bundle) -> tuple[NamespaceName, int]:
    return bundle.namespace, bundle.lower


class Ownership:
    """The bundles of one broker."""

    def __init__(self, rules: OwnershipRules = OWNERSHIP_RULES) -> None:
        self._rules = rules
        self.session = 0
        """Number of the session that lasts; 0: there is none."""
        self._held: dict[Bundle, _Held] = {}
        self._owned: list[Bundle] = []
        """Those that are owned, sorted: a look-up of a topic's bundle takes no longer with many of them."""

    # -- questions ---------------------------------------------------------------------------------

    def state(self, bundle: Bundle) -> BundleState:
        """What the bundle is to this broker now."""
        held = self._held.get(bundle)
        return BundleState.UNOWNED if held is None else held.state

    def serves(self, bundle: Bundle) -> bool:
        """Whether topics of the bundle may be loaded now."""
        return self.state(bundle) is BundleState.OWNED

    def having(self, state: BundleState) -> Iterator[Bundle]:
        """The bundles in a state, but for UNOWNED."""
        for bundle, held in list(self._held.items()):
            if held.state is state:
                yield bundle

    def __len__(self) -> int:
        """How many are owned."""
        return len(self._owned)

    def has(self, topic: TopicName) -> bool:
        """Whether the topic falls into an owned bundle."""
        return self.bundle_of(topic) is not None

    def bundle_of(self, topic: TopicName) -> Bundle | None:
        """The owned bundle that the topic falls into."""
        namespace, place = topic.namespace_name, hash_of(topic)
        after = bisect_right(self._owned, (namespace, place), key=_start_of)
        if not after:
            return None
        # Owned bundles do not overlap: no other one can have it.
        bundle = self._owned[after - 1]
        fits = bundle.namespace == namespace and covers((bundle.lower, bundle.upper), place)
        return bundle if fits else None

    # -- sessions ----------------------------------------------------------------------------------

    def session_began(self, number: int) -> None:
        """The store has a session, whose `number` is higher than any before."""
        assert not self.session, "two sessions at once"
        self.session = number

    def session_lost(self) -> list[Effect]:
        """The session has ended, and with it all records; those of claims under way too."""
        self.session = 0
        effects: list[Effect] = []
        if not self._rules.ends_with_session():
            return effects
        for bundle, held in list(self._held.items()):
            if held.state is BundleState.CLAIMING:
                self._leave(bundle)
            else:
                effects += self._lose(bundle)
        return effects

    # -- claims ------------------------------------------------------------------------------------

    def want(self, bundle: Bundle) -> list[Effect]:
        """This broker is to have the bundle. Nothing happens where that is under way, or cannot be now."""
        if not self.session or bundle in self._held:
            return []
        self._held[bundle] = _Held(self.session)
        return [Claim(bundle, self.session)]

    def claimed(self, bundle: Bundle, session: int, *, alone: bool) -> list[Effect]:
        """The record was created in `session`. `alone`: the bundle is one of its namespace's, and no record
        overlaps it."""
        held = self._held.get(bundle)
        if session != self.session or held is None or held.state is not BundleState.CLAIMING:
            return []
        if not alone:
            self._leave(bundle)
            return [Delete(bundle, session)]
        self._turn(bundle, held, BundleState.OWNED)
        return []

    def not_claimed(self, bundle: Bundle, session: int) -> None:
        """Another broker has the record, or none could be made."""
        held = self._held.get(bundle)
        if session == self.session and held is not None and held.state is BundleState.CLAIMING:
            self._leave(bundle)

    # -- what is given up --------------------------------------------------------------------------

    def release(self, bundle: Bundle, to: str = "") -> list[Effect]:
        """The bundle is to leave this broker. Nothing happens unless it is owned."""
        held = self._held.get(bundle)
        if held is None or held.state is not BundleState.OWNED:
            return []
        self._turn(bundle, held, BundleState.RELEASING)
        return self._rules.at_release(Close(bundle, lost=False, to=to), Delete(bundle, held.session))

    def record_gone(self, bundle: Bundle, session: int) -> list[Effect]:
        """The record is missing, or another broker's: read in `session`."""
        held = self._held.get(bundle)
        if held is None or held.session != session:
            return []
        is_lost = self._rules.loses_without_record(held.state, closed=held.closed)
        return self._lose(bundle) if is_lost else []

    def closed(self, bundle: Bundle) -> list[Effect]:
        """No topic of the bundle is loaded any more, and none is being loaded."""
        held = self._held[bundle]
        if held.state is BundleState.LOST:
            self._leave(bundle)
            return []
        assert held.state is BundleState.RELEASING, f"{bundle} is {held.state.value} and its topics closed"
        held.closed = True
        return [Delete(bundle, held.session)]

    def deleted(self, bundle: Bundle, session: int) -> None:
        """The record is gone; also where it was gone before."""
        held = self._held.get(bundle)
        if held is not None and held.session == session and held.state is BundleState.RELEASING:
            self._leave(bundle)

    # -- steps -------------------------------------------------------------------------------------

    def _lose(self, bundle: Bundle) -> list[Effect]:
        held = self._held[bundle]
        if held.state is BundleState.LOST:
            return []
        closing = held.state is BundleState.RELEASING
        if closing and held.closed:
            self._leave(bundle)
            return []
        self._turn(bundle, held, BundleState.LOST)
        # One that is being released is being closed: `closed` comes once.
        return [] if closing else [Close(bundle, lost=True, to="")]

    def _turn(self, bundle: Bundle, held: _Held, state: BundleState) -> None:
        assert state in TRANSITIONS[held.state], f"{held.state.value} cannot become {state.value}"
        if held.state is BundleState.OWNED:
            self._owned.remove(bundle)
        elif state is BundleState.OWNED:
            insort(self._owned, bundle)
        held.state = state

    def _leave(self, bundle: Bundle) -> None:
        held = self._held.pop(bundle)
        before = BundleState.LOST if held.closed else held.state
        assert BundleState.UNOWNED in TRANSITIONS[before], f"{held.state.value} cannot become unowned"

    def check(self) -> None:
        """Asserts what must always hold."""
        for bundle, held in self._held.items():
            if held.state in (BundleState.CLAIMING, BundleState.OWNED):
                assert self.session, f"{bundle} is {held.state.value} without a session"
                assert held.session == self.session, f"{bundle} is {held.state.value} of a former session"
            assert not held.closed or held.state is BundleState.RELEASING, f"{bundle} has closed topics"
        owned = sorted(self.having(BundleState.OWNED))
        assert owned == self._owned, "a look-up would miss a bundle, or find one that is gone"
        for left, right in itertools.pairwise(owned):
            assert not left.overlaps(right), f"{left} and {right} are both owned"

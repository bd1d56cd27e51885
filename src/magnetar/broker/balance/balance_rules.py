"""The rules that keep bundles from moving to and fro (pure).

They are handed to `Shedding`, `Leadership` and `Balance` as an object, so that the simulator can hand in
broken ones and show that each is needed (`sim/balance/mutations.py`). None of them protects messages: that
is the business of `broker/ownership`.

Reasons: docs/decisions/0035-load-manager.md.
"""

from __future__ import annotations

from typing import Final

from magnetar.broker.balance.settings import BalanceSettings

STALE_MS: Final = 17_000
"""Age of a report from which on it says nothing: three are missing."""
DECISION_MS: Final = 5_000
"""For so long a decision counts: then there are new reports."""


class BalanceRules:
    """On what evidence bundles are moved and split, and by which broker."""

    __slots__ = ()

    # -- evidence ----------------------------------------------------------------------------------

    def is_fresh(self, age_ms: float) -> bool:
        """Whether a report of that age counts. A broker that hangs may have been idle when it reported
        last."""
        return age_ms < STALE_MS

    def age_at_first_look_ms(self) -> float:
        """Age of a report that was there when this broker looked for the first time. It may have been there
        for very long: its broker's next one is waited for."""
        return STALE_MS

    def reports_needed(self, settings: BalanceSettings) -> int:
        """How many reports in a row must show too much load: else each peak of seconds moves a bundle."""
        return settings.hits

    def counted(self, average: float, last: float) -> float:
        """What a report counts for, from the average with those before and from itself. One peak raises the
        averages of several reports, and would count for several."""
        return min(average, last)

    # -- moves -------------------------------------------------------------------------------------

    def may_move(self, source_then: float, target_then: float) -> bool:
        """Whether a bundle may go to a broker that then has so much to do: no more than the one that it
        leaves. Else a hot bundle goes round."""
        return target_then <= source_then

    def rest_ms(self, settings: BalanceSettings) -> float:
        """For so long a bundle stays where it was moved: else load that comes and goes takes it along."""
        return settings.grace_minutes * 60_000

    def decision_counts(self, age_ms: float, *, leads: bool) -> bool:
        """Whether a decision of that age may still be carried out. An owner that hangs holds up the moves
        that come after its own."""
        return leads and age_ms < DECISION_MS

    def names_the_owner(self) -> bool:
        """Whether a move is dropped when its bundle has another owner than the one that it was decided
        for."""
        return True

    # -- splits ------------------------------------------------------------------------------------

    def part_fits(self, part: float, room: float) -> bool:
        """Whether another broker gets a part of a bundle: the fraction `part`, where it has time for
        `room`."""
        return part <= room

    def may_split(self, bundles: int, bundles_max: int) -> bool:
        """Whether a namespace of that many bundles may get one more, when the ranges are written: other
        brokers split theirs at the same time."""
        return bundles < bundles_max

    # -- the leader --------------------------------------------------------------------------------

    def goes_with_a_session(self, *, is_ephemeral: bool) -> bool:
        """Whether the record of a leader may stay. One that no session takes along is from a copy of the
        metadata: no broker would ever lead."""
        return is_ephemeral

    def leads(self, named: str, own_id: str) -> bool:
        """Whether a broker leads where the record names `named`: else two would move the same load."""
        return named == own_id


RULES: Final = BalanceRules()

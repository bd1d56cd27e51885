"""Rules of even load, each with a way to break it.

Some are not here, because breaking one of them alone changes nothing. A leader loses its place with its
session, it reads the record before it acts, and the store takes nothing from a session that has ended: each
hides the others. So do the two reports that are passed over after a move, and the one that is passed over
because a broker has another number of bundles.
"""

from __future__ import annotations

from typing import Final

from magnetar.broker.balance.balance_rules import BalanceRules
from magnetar.broker.balance.settings import BalanceSettings
from sim.breaking import Mutation
from sim.rules import RulesInForce


class _TakesOldReports(BalanceRules):
    def is_fresh(self, age_ms: float) -> bool:
        return True


class _OneReportIsEnough(BalanceRules):
    def reports_needed(self, settings: BalanceSettings) -> int:
        return 1


class _GoesByAverages(BalanceRules):
    def counted(self, average: float, last: float) -> float:
        return average


class _MovesTheTrouble(BalanceRules):
    def may_move(self, source_then: float, target_then: float) -> bool:
        return True


class _NoRest(BalanceRules):
    def rest_ms(self, settings: BalanceSettings) -> float:
        return 0.0


class _CarriesOutWhatWas(BalanceRules):
    def decision_counts(self, age_ms: float, *, leads: bool) -> bool:
        return True


class _TakesFromAny(BalanceRules):
    def names_the_owner(self) -> bool:
        return False


class _GivesAnyPart(BalanceRules):
    def part_fits(self, part: float, room: float) -> bool:
        return True


class _SplitsByWhatWas(BalanceRules):
    def may_split(self, bundles: int, bundles_max: int) -> bool:
        return True


class _KeepsCopies(BalanceRules):
    def goes_with_a_session(self, *, is_ephemeral: bool) -> bool:
        return True


class _AllLead(BalanceRules):
    def leads(self, named: str, own_id: str) -> bool:
        return True


BALANCE_MUTATIONS: Final = {
    "stale-reports": Mutation(
        "a broker that has not reported lately is neither relieved nor given anything",
        [(RulesInForce, "balance", _TakesOldReports())],
        found_by=27,
        scenario="balance",
    ),
    "several-reports": Mutation(
        "a load must be too high in several reports in a row",
        [(RulesInForce, "balance", _OneReportIsEnough())],
        found_by=1,
        scenario="balance",
    ),
    "each-report": Mutation(
        "it must be too high in each of them, not in their average alone",
        [(RulesInForce, "balance", _GoesByAverages())],
        found_by=31,
        scenario="balance",
    ),
    "no-worse": Mutation(
        "a bundle is moved only if its new broker then has no more to do",
        [(RulesInForce, "balance", _MovesTheTrouble())],
        found_by=1,
        scenario="balance",
    ),
    "rest": Mutation(
        "a bundle that was moved rests",
        [(RulesInForce, "balance", _NoRest())],
        found_by=0,
        scenario="balance",
    ),
    "old-decision": Mutation(
        "a decision is not carried out when there are new reports",
        [(RulesInForce, "balance", _CarriesOutWhatWas())],
        found_by=13,
        scenario="balance",
    ),
    "owner-named": Mutation(
        "a move takes the bundle from the owner that it was decided for",
        [(RulesInForce, "balance", _TakesFromAny())],
        found_by=20,
        scenario="balance",
    ),
    "room": Mutation(
        "another broker gets a part that it has time for",
        [(RulesInForce, "balance", _GivesAnyPart())],
        found_by=20,
        scenario="balance",
    ),
    "bundles-max": Mutation(
        "the number of bundles is looked at when the ranges are written",
        [(RulesInForce, "balance", _SplitsByWhatWas())],
        found_by=56,
        scenario="balance",
    ),
    "copied-leader": Mutation(
        "a leader whose record no session takes along does not lead",
        [(RulesInForce, "balance", _KeepsCopies())],
        found_by=5,
        scenario="balance",
    ),
    "one-leader": Mutation(
        "the broker leads that the record names",
        [(RulesInForce, "balance", _AllLead())],
        found_by=0,
        scenario="balance",
    ),
}

"""Which bundles are to leave which broker for which other one: the decisions (pure).

Theory of operation. Reports of brokers come in (`told`), and the ends of moves (`ended`). `decide` returns
the moves to make now. Only the leader asks, but a leader that was not told yet that there is another one asks
too: a second decision costs a move, never a message.

A broker sheds when it has too much to do, as the strategy says. That is the time of a processor that it uses,
and the time that it waits for one: on a busy machine it uses little because it gets little. Moreover a broker
that has just come gets bundles in use until it has its share of their number: what it could take is then seen
at the next reports.

Rules that keep bundles from moving to and fro; `sim/balance/mutations.py` breaks them:
1. Only fresh reports count: a broker that has not reported lately is neither relieved nor given anything. How
   old a report is that was there at the first look is not known, so the next one is waited for.
2. A load must be too high in several reports in a row, in each by itself and in the average with those
   before.
3. A bundle is moved only if its new broker will not have more to do than the one it leaves.
4. A broker is judged anew only by reports that cover none of the time before its last move.
5. A bundle that was moved rests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from magnetar.broker.balance.balance_rules import RULES, BalanceRules
from magnetar.broker.balance.settings import DEFAULTS, BalanceSettings, SheddingStrategy
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.records import BrokerReport

CALM_POINTS: Final = 25.0
"""A broker that wants less of a processor, in percent, has nothing to give away, whatever the others do."""
MOVES_MAX: Final = 32
"""Bundles that are moved by one decision."""
NEW_MS: Final = 60_000
"""For so long a broker that came, or takes bundles again, gets its share of bundles."""
_SETTLES: Final = 2
"""Reports after a move until one covers only the time after it."""
_NEW_WEIGHT: Final = 0.5
"""Weight of a report against those before."""
_QUIET_RATE: Final = 1_000.0
"""UNIFORM: a broker with fewer messages per second has nothing to give away (Pulsar's minUnloadMessage)."""
_QUIET_BYTES: Final = 1 << 20
"""So for bytes per second (Pulsar's minUnloadMessageThroughput)."""

LOAD: Final = "load"
"""Reason of a move: the broker had too much to do."""
SHARE: Final = "share"
"""Reason of a move: the new owner had just come."""

Allowed = Callable[[Bundle], frozenset[str] | None]
"""Brokers that may have a bundle; None: it is not to be moved for its load."""


class Shed(NamedTuple):
    """One move."""

    bundle: Bundle
    source: str
    target: str
    reason: str
    """LOAD or SHARE."""


class TooBig(NamedTuple):
    """A bundle that makes its broker busy, and is too large to be moved as a whole."""

    bundle: Bundle
    target: str
    """Broker that is to get a part of it; "": no other one has time for it."""
    room: float
    """Fraction of the bundle's load up to which the target will not have too much to do."""


@dataclass(slots=True)
class _Seen:
    """A broker."""

    report: BrokerReport
    since_ms: float
    told_ms: float
    wanted_percent: float
    """Averaged over reports; see `Load`."""
    rate: float
    size_rate: float
    unsettled: int = 0
    """Reports that are still passed over."""
    hits: int = 0
    """Reports in a row with too much load."""
    judged_ms: int = 0
    """The report that was counted last."""


@dataclass(slots=True)
class _Account:
    """A broker's load as it will be after the moves decided so far."""

    broker: str
    score: float
    cost: float
    bundles: dict[Bundle, float] = field(default_factory=dict)
    """Cost of those in use."""

    def share(self, bundle: Bundle) -> float:
        """Part of the score that goes with the bundle."""
        return self.score * self.bundles[bundle] / self.cost if self.cost else 0.0

    def give(self, bundle: Bundle, other: _Account) -> None:
        """Moves it."""
        share, cost = self.share(bundle), self.bundles.pop(bundle)
        self.score -= share
        self.cost -= cost
        other.score += share
        other.cost += cost
        other.bundles[bundle] = cost


class Shedding:
    """The view of one broker that may lead."""

    def __init__(self, rules: BalanceRules = RULES) -> None:
        self.settings: BalanceSettings = DEFAULTS
        self._rules = rules
        self._seen: dict[str, _Seen] = {}
        self._has_looked = False
        """Whether reports were told before: what is there at the first look may have been there for long."""
        self._rests: dict[Bundle, float] = {}
        """Until when a bundle stays where it is."""

    # -- what happened -----------------------------------------------------------------------------

    def told(self, reports: Mapping[str, BrokerReport], now_ms: float) -> None:
        """The reports of all brokers that may have bundles, as they are now."""
        came_ms = now_ms if self._has_looked else now_ms - self._rules.age_at_first_look_ms()
        self._has_looked = True
        for gone in self._seen.keys() - reports.keys():
            del self._seen[gone]
        for broker_id, report in reports.items():
            seen = self._seen.get(broker_id)
            if seen is None or seen.report.started_ms != report.started_ms:
                load = report.load
                self._seen[broker_id] = _Seen(
                    report, now_ms, came_ms, load.wanted_percent, _rate(report), _size_rate(report)
                )
            elif seen.report.reported_ms != report.reported_ms:
                self._count(seen, report, now_ms)

    def _count(self, seen: _Seen, report: BrokerReport, now_ms: float) -> None:
        old = 0.0 if seen.unsettled else 1.0 - _NEW_WEIGHT
        seen.wanted_percent = old * seen.wanted_percent + (1 - old) * report.load.wanted_percent
        seen.rate = old * seen.rate + (1 - old) * _rate(report)
        seen.size_rate = old * seen.size_rate + (1 - old) * _size_rate(report)
        # One that gave or got a bundle for another reason is judged by the next report too.
        changed = seen.report.load.bundles != report.load.bundles
        seen.report, seen.told_ms = report, now_ms
        seen.unsettled = max(seen.unsettled - 1, int(changed))

    def ended(self, move: Shed, now_ms: float, *, made: bool) -> None:
        """The move was made, or it failed: then the next reports decide again."""
        if made and move.reason == LOAD:
            self._rests[move.bundle] = now_ms + self._rules.rest_ms(self.settings)
        for broker_id in (move.source, move.target):
            if broker_id in self._seen:
                self._seen[broker_id].unsettled = _SETTLES
                self._seen[broker_id].hits = 0

    # -- questions ---------------------------------------------------------------------------------

    def decide(self, allowed: Allowed, now_ms: float) -> list[Shed]:
        """The moves to make now; `ended` is to be called for each."""
        if not self.settings.shedding:
            return []
        self._rests = {bundle: until for bundle, until in self._rests.items() if until > now_ms}
        fresh = {name: seen for name, seen in self._seen.items() if self._is_fresh(seen, now_ms)}
        self._judge(fresh)
        if len(fresh) < 2:
            return []
        accounts = {name: self._account(seen) for name, seen in fresh.items()}
        made = self._shares(fresh, accounts, allowed, now_ms)
        if not made:
            made = self._relief(fresh, accounts, allowed)
        return made

    def overloaded(self, broker_id: str) -> bool:
        """Whether the broker has had too much to do in several reports, as of the last `decide`."""
        seen = self._seen.get(broker_id)
        return seen is not None and seen.hits >= self._rules.reports_needed(self.settings)

    def too_big(self, broker_id: str, allowed: Allowed, now_ms: float) -> TooBig | None:
        """The bundle whose size keeps a broker with too much to do from being relieved. None: the broker is
        not overloaded, or a bundle can be moved."""
        fresh = {name: seen for name, seen in self._seen.items() if self._is_fresh(seen, now_ms)}
        if not self.settings.shedding or not self.overloaded(broker_id) or broker_id not in fresh:
            return None
        accounts = {name: self._account(seen) for name, seen in fresh.items()}
        source = accounts[broker_id]
        if not source.bundles:
            return None
        for bundle in source.bundles:
            target = self._best(bundle, fresh, accounts, allowed, but=broker_id)
            if target is not None and self._may_move(source, bundle, target):
                return None
        largest = max(source.bundles, key=lambda each: (source.bundles[each], each))
        target = self._best(largest, fresh, accounts, allowed, but=broker_id)
        share, points = source.share(largest), self.settings.threshold_points
        if target is None or share < points:
            return None
        if target.score + share / 2 + points >= source.score:
            return TooBig(largest, "", 0.0)
        # Not an even cut: what is left of the difference can be moved later, as the parts are smaller.
        return TooBig(largest, target.broker, (source.score + points - target.score) / (2 * share))

    def wanted_percent(self, broker_id: str) -> float:
        """Averaged over reports; 0 for a broker that is not known."""
        seen = self._seen.get(broker_id)
        return 0.0 if seen is None else seen.wanted_percent

    def _is_fresh(self, seen: _Seen, now_ms: float) -> bool:
        return self._rules.is_fresh(now_ms - seen.told_ms)

    def _account(self, seen: _Seen) -> _Account:
        bundles = {bundle: load.cost for bundle, load in seen.report.load.of_bundles.items()}
        of_all = seen.report.load
        cost = _rate(seen.report) + (of_all.bytes_in + of_all.bytes_out) / 1024
        return _Account(
            seen.report.broker_id, self._score(seen), max(cost, sum(bundles.values())), dict(bundles)
        )

    def _score(self, seen: _Seen) -> float:
        if self.settings.strategy is SheddingStrategy.UNIFORM:
            return seen.rate + seen.size_rate / 1024
        return seen.wanted_percent

    # -- too much to do ----------------------------------------------------------------------------

    def _judge(self, fresh: Mapping[str, _Seen]) -> None:
        """Counts the reports in a row that show too much."""
        for seen in fresh.values():
            if seen.judged_ms == seen.report.reported_ms:
                continue
            seen.judged_ms = seen.report.reported_ms
            too_much = not seen.unsettled and self._has_too_much(seen, fresh)
            seen.hits = seen.hits + 1 if too_much else 0

    def _has_too_much(self, seen: _Seen, fresh: Mapping[str, _Seen]) -> bool:
        if len(fresh) < 2:
            return False
        last, counted = seen.report, self._rules.counted
        if self.settings.strategy is SheddingStrategy.THRESHOLD:
            average = sum(each.wanted_percent for each in fresh.values()) / len(fresh)
            wanted = counted(seen.wanted_percent, last.load.wanted_percent)
            return wanted > max(CALM_POINTS, average + self.settings.threshold_points)
        least_rate = min(each.rate for each in fresh.values())
        least_size = min(each.size_rate for each in fresh.values())
        rate, size_rate = counted(seen.rate, _rate(last)), counted(seen.size_rate, _size_rate(last))
        by_rate = rate > max(_QUIET_RATE, least_rate * (1 + self.settings.rate_difference_percent / 100))
        by_size = size_rate > max(_QUIET_BYTES, least_size * self.settings.size_factor)
        return by_rate or by_size

    def _relief(
        self, fresh: Mapping[str, _Seen], accounts: Mapping[str, _Account], allowed: Allowed
    ) -> list[Shed]:
        """Bundles that leave brokers with too much to do; the busiest broker first."""
        made: list[Shed] = []
        average = sum(each.score for each in accounts.values()) / len(accounts)
        for name in sorted(fresh, key=lambda each: -accounts[each].score):
            if not self.overloaded(name):
                continue
            source = accounts[name]
            for bundle in sorted(source.bundles, key=lambda each: (-source.bundles[each], each)):
                if source.score <= average or len(made) >= MOVES_MAX:
                    break
                target = self._best(bundle, fresh, accounts, allowed, but=name)
                if target is not None and self._may_move(source, bundle, target):
                    source.give(bundle, target)
                    made.append(Shed(bundle, name, target.broker, LOAD))
        return made

    def _may_move(self, source: _Account, bundle: Bundle, target: _Account) -> bool:
        return not self._rests_still(bundle) and self._is_better(source, source.share(bundle), target)

    def _rests_still(self, bundle: Bundle) -> bool:
        return bundle in self._rests

    def _is_better(self, source: _Account, share: float, target: _Account) -> bool:
        """Whether the new owner of this share will not have more to do than the former one."""
        return share > 0 and self._rules.may_move(source.score - share, target.score + share)

    def _best(
        self,
        bundle: Bundle,
        fresh: Mapping[str, _Seen],
        accounts: Mapping[str, _Account],
        allowed: Allowed,
        *,
        but: str,
    ) -> _Account | None:
        """The account of the broker with the least to do that may get it."""
        others = self._takers(bundle, fresh, allowed, but=but)
        return min((accounts[each] for each in others), key=_by_score, default=None)

    def _takers(self, bundle: Bundle, fresh: Mapping[str, _Seen], allowed: Allowed, *, but: str) -> list[str]:
        """Brokers that may get it now."""
        able = allowed(bundle)
        if able is None:
            return []
        return [name for name, seen in fresh.items() if name in able and name != but and not seen.unsettled]

    # -- a new broker's share ----------------------------------------------------------------------

    def _shares(
        self,
        fresh: Mapping[str, _Seen],
        accounts: Mapping[str, _Account],
        allowed: Allowed,
        now_ms: float,
    ) -> list[Shed]:
        """Bundles for brokers that have just come, and have less than half of their share."""
        made: list[Shed] = []
        average = sum(len(each.bundles) for each in accounts.values()) / len(accounts)
        for name, seen in sorted(fresh.items()):
            target = accounts[name]
            if now_ms - seen.since_ms > NEW_MS or seen.unsettled or len(target.bundles) >= average / 2:
                continue
            while len(target.bundles) < int(average) and len(made) < MOVES_MAX:
                found = self._to_share(target, fresh, accounts, allowed)
                if found is None:
                    break
                source, bundle = found
                source.give(bundle, target)
                made.append(Shed(bundle, source.broker, name, SHARE))
        return made

    def _to_share(
        self,
        target: _Account,
        fresh: Mapping[str, _Seen],
        accounts: Mapping[str, _Account],
        allowed: Allowed,
    ) -> tuple[_Account, Bundle] | None:
        """A bundle of average load from the broker with the most bundles in use."""
        sources = [
            each
            for each in accounts.values()
            if len(each.bundles) > len(target.bundles) + 1 and not fresh[each.broker].unsettled
        ]
        for source in sorted(sources, key=lambda each: (-len(each.bundles), -each.score, each.broker)):
            mean = sum(source.bundles.values()) / len(source.bundles)
            for bundle in sorted(source.bundles, key=lambda each: (abs(source.bundles[each] - mean), each)):
                if target.broker in self._takers(bundle, fresh, allowed, but=source.broker):
                    return source, bundle
        return None


def _by_score(account: _Account) -> tuple[float, int, str]:
    return account.score, len(account.bundles), account.broker


def _rate(report: BrokerReport) -> float:
    return report.load.rate_in + report.load.rate_out


def _size_rate(report: BrokerReport) -> float:
    return report.load.bytes_in + report.load.bytes_out

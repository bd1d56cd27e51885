"""Which bundles leave which broker: brokers whose load follows their bundles, report by report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from magnetar.base.names import NamespaceName
from magnetar.broker.balance.balance_rules import STALE_MS
from magnetar.broker.balance.settings import BalanceSettings, SheddingStrategy
from magnetar.broker.balance.shedding import LOAD, NEW_MS, SHARE, Shed, Shedding, TooBig
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.bundle_load import BundleLoad
from magnetar.broker.ownership.records import BrokerReport, BrokerUrls, Load

_NAMESPACE = NamespaceName("public", "default")
_REPORT_MS = 5_000


def bundle(number: int) -> Bundle:
    return Bundle(_NAMESPACE, number << 24, (number + 1) << 24)


class Cluster:
    """Brokers that are as busy as their bundles have messages: 1 % for each 100 per second."""

    def __init__(self, *owned: dict[int, float], settings: BalanceSettings | None = None) -> None:
        """`owned`: of each broker its bundles, with messages per second."""
        self.rates = {number: rate for each in owned for number, rate in each.items()}
        self.owners = {number: f"b{at}" for at, each in enumerate(owned) for number in each}
        self.brokers = [f"b{at}" for at in range(len(owned))]
        self.silent: set[str] = set()
        self.moves: list[Shed] = []
        self.moves_fail = False
        self.now_ms = 0
        self.shedding = Shedding()
        self.shedding.settings = settings or BalanceSettings()
        self._reports: dict[str, BrokerReport] = {}

    def grow_old(self) -> Cluster:
        """No broker is new any more."""
        self._report_all()
        self.now_ms += NEW_MS
        return self

    def _report_all(self) -> None:
        self.now_ms += _REPORT_MS
        for broker in set(self.brokers) - self.silent:
            self._reports[broker] = self.report(broker)
        self.shedding.told(self._reports, self.now_ms)

    def report(self, broker: str) -> BrokerReport:
        owned = {
            bundle(n): BundleLoad(self.rates[n], producers=1) for n in self.rates if self.owners[n] == broker
        }
        rate = sum(each.rate_in for each in owned.values())
        load = Load(bundles=len(owned), rate_in=rate, cpu_percent=rate / 100, of_bundles=owned)
        urls = BrokerUrls(Addresses(plain=f"pulsar://{broker}", http=f"http://{broker}"))
        return BrokerReport(urls, load, started_ms=1, reported_ms=self.now_ms)

    def allowed(self, _: Bundle) -> frozenset[str] | None:
        return frozenset(self.brokers)

    def rounds(self, count: int) -> list[Shed]:
        """Makes a number of reports; returns what is moved meanwhile."""
        made: list[Shed] = []
        for _ in range(count):
            self._report_all()
            for move in self.shedding.decide(self.allowed, self.now_ms):
                assert self.owners[move.bundle.lower >> 24] == move.source
                if not self.moves_fail:
                    self.owners[move.bundle.lower >> 24] = move.target
                self.shedding.ended(move, self.now_ms, made=not self.moves_fail)
                made.append(move)
        self.moves += made
        return made

    def busy(self) -> Mapping[str, float]:
        """Percent of each broker's processor."""
        return {broker: self.report(broker).load.cpu_percent for broker in self.brokers}


def test_a_busy_broker_gives_bundles_away_until_the_others_have_as_much() -> None:
    cluster = Cluster(dict.fromkeys(range(8), 1000), {8: 1_000}, {9: 1_000}).grow_old()
    assert {move.reason for move in cluster.rounds(6)} == {LOAD}
    assert max(cluster.busy().values()) - min(cluster.busy().values()) <= 10
    assert cluster.rounds(30) == []


def test_one_report_is_not_enough() -> None:
    cluster = Cluster({0: 1_000, 1: 1_000}, {2: 1_000}).grow_old()
    cluster.rates[0] = cluster.rates[1] = 4_000
    assert cluster.rounds(1) == []
    cluster.rates[0] = cluster.rates[1] = 1_000
    assert cluster.rounds(10) == []


def test_a_peak_in_one_report_does_not_count_for_two() -> None:
    """It raises the average of the next report too: 20, 60, 40 percent, while the others have 20."""
    cluster = Cluster(dict.fromkeys(range(8), 250), {8: 2_000}, {9: 2_000}).grow_old()
    cluster.rounds(1)
    for number in range(8):
        cluster.rates[number] = 1_250
    assert cluster.rounds(1) == []
    for number in range(8):
        cluster.rates[number] = 250
    assert cluster.rounds(10) == []


def test_reports_that_were_there_before_count_from_the_next_one_on() -> None:
    """How old they are is not known: their broker may have hung for an hour."""
    cluster = Cluster(dict.fromkeys(range(8), 1000), {8: 100}, {9: 1_000}).grow_old()
    cluster.shedding = Shedding()
    cluster.silent = {"b1"}
    moved = cluster.rounds(6)
    assert moved
    assert "b1" not in {move.target for move in moved}


@pytest.mark.parametrize("rate", [500, 20_000])
def test_a_bundle_that_would_only_move_the_trouble_stays(rate: int) -> None:
    """One that makes the whole load of its broker would be the whole trouble of the next one."""
    cluster = Cluster({0: rate, 1: 100}, {2: 100}).grow_old()
    moved = cluster.rounds(20)
    assert bundle(0) not in [move.bundle for move in moved]


def test_too_big_a_bundle_is_named_with_the_broker_for_its_half() -> None:
    cluster = Cluster({0: 6_000}, {1: 100}).grow_old()
    assert cluster.rounds(2) == []
    found = cluster.shedding.too_big("b0", cluster.allowed, cluster.now_ms)
    assert found == TooBig(bundle(0), "b1", pytest.approx((60 + 10 - 1) / 120))
    assert cluster.shedding.too_big("b1", cluster.allowed, cluster.now_ms) is None


def test_a_broker_that_can_be_relieved_has_no_bundle_that_is_too_big() -> None:
    cluster = Cluster({0: 3_000, 1: 1_000, 2: 1_000}, {3: 100}).grow_old()
    cluster.shedding.settings = BalanceSettings(hits=3)
    cluster.rounds(2)
    cluster.shedding.settings = BalanceSettings(hits=1)
    assert cluster.shedding.overloaded("b0")
    assert cluster.shedding.too_big("b0", cluster.allowed, cluster.now_ms) is None


def test_a_bundle_that_was_moved_rests() -> None:
    """Load that comes and goes between two brokers moves each bundle once."""
    cluster = Cluster({0: 3_000, 1: 3_000, 2: 500}, {3: 500}).grow_old()
    for turn in range(40):
        quiet, loud = ("b0", "b1") if turn % 2 else ("b1", "b0")
        for number, owner in cluster.owners.items():
            cluster.rates[number] = 3_000 if owner == loud else 300
            assert quiet in cluster.brokers
        cluster.rounds(3)
    moved = [move.bundle for move in cluster.moves]
    assert len(moved) == len(set(moved)) > 0


def test_a_broker_that_does_not_report_is_left_alone() -> None:
    cluster = Cluster(dict.fromkeys(range(8), 1000), {8: 100}, {9: 1_000}).grow_old()
    cluster.silent = {"b1"}
    cluster.rounds(int(STALE_MS / _REPORT_MS) + 1)
    cluster.moves.clear()
    cluster.rates.update(dict.fromkeys(range(8), 1_100.0))
    cluster.rounds(10)
    assert "b1" not in {name for move in cluster.moves for name in (move.source, move.target)}


def test_a_broker_is_judged_anew_only_by_reports_after_its_last_move() -> None:
    cluster = Cluster(dict.fromkeys(range(6), 1000), {6: 100}).grow_old()
    cluster.rounds(1)
    count = len(cluster.rounds(1))
    assert count
    # What it reports next is mostly of the time before.
    cluster.owners.update(dict.fromkeys(range(6), "b0"))
    assert cluster.rounds(2) == []
    assert count == len(cluster.moves)


def test_a_new_broker_gets_its_share_at_once() -> None:
    cluster = Cluster(dict.fromkeys(range(6), 1000), dict.fromkeys(range(6, 12), 1000)).grow_old()
    cluster.rounds(2)
    cluster.brokers.append("b2")
    moved = cluster.rounds(1)
    assert len(moved) == 4
    assert {move.reason for move in moved} == {SHARE}
    assert sorted(cluster.busy().values()) == [40, 40, 40]
    assert cluster.rounds(30) == []


def test_a_broker_that_is_not_new_gets_no_share() -> None:
    """Bundles in use that an operator moves are found where they were moved to."""
    cluster = Cluster({0: 10, 1: 10}, {2: 10, 3: 10}).grow_old()
    cluster.owners.update({0: "b1", 1: "b1"})
    assert cluster.rounds(30) == []


def test_bundles_without_clients_are_no_share() -> None:
    cluster = Cluster({}, {})
    assert cluster.rounds(5) == []


def test_uniform_goes_by_messages() -> None:
    settings = BalanceSettings(strategy=SheddingStrategy.UNIFORM)
    cluster = Cluster(dict.fromkeys(range(4), 500), {4: 500}, settings=settings).grow_old()
    assert len(cluster.rounds(6)) == 1
    assert cluster.rounds(20) == []
    quiet = Cluster(dict.fromkeys(range(4), 100), {4: 100}, settings=settings).grow_old()
    assert quiet.rounds(20) == []


def test_shedding_can_be_switched_off() -> None:
    cluster = Cluster(dict.fromkeys(range(8), 1000), {8: 100}, settings=BalanceSettings(shedding=False))
    assert cluster.rounds(30) == []
    assert cluster.shedding.too_big("b0", cluster.allowed, cluster.now_ms) is None


def test_only_allowed_brokers_get_a_bundle() -> None:
    cluster = Cluster(dict.fromkeys(range(8), 1000), {8: 100}, {9: 1_000}).grow_old()
    cluster.allowed = lambda _: frozenset({"b0", "b2"})  # type: ignore[method-assign]  # for this story
    cluster.rounds(20)
    assert {move.target for move in cluster.moves} == {"b2"}


def test_a_process_that_started_again_is_a_new_broker() -> None:
    cluster = Cluster(dict.fromkeys(range(4), 1000), {}).grow_old()
    cluster.rounds(1)
    first = cluster.report("b0")
    first = replace(first, load=replace(first.load, waited_percent=5.0))
    cluster.shedding.told({"b0": replace(first, started_ms=2, reported_ms=1)}, cluster.now_ms)
    assert cluster.shedding.wanted_percent("b0") == first.load.cpu_percent + 5.0
    assert cluster.shedding.wanted_percent("b1") == 0


def test_a_broker_that_hangs_gets_nothing_although_it_was_idle() -> None:
    cluster = Cluster(dict.fromkeys(range(8), 100), {8: 1}, {9: 2}).grow_old()
    cluster.silent = {"b1"}
    cluster.rounds(int(STALE_MS / _REPORT_MS) + 1)
    cluster.rates.update(dict.fromkeys(range(8), 1_000.0))
    assert {move.target for move in cluster.rounds(10)} == {"b2"}


def test_a_bundle_that_rests_is_passed_over_for_another_one() -> None:
    cluster = Cluster({0: 3_000, 1: 3_000, 4: 500}, {2: 100, 3: 100}).grow_old()
    assert [move.bundle for move in cluster.rounds(10)] == [bundle(0)]
    cluster.rates.update({0: 1_500, 1: 1, 2: 1_400, 3: 1_300, 4: 1})
    moved = [move.bundle for move in cluster.rounds(10)]
    assert bundle(0) not in moved
    assert bundle(2) in moved


def test_a_broker_that_is_hardly_busy_gives_nothing_away() -> None:
    cluster = Cluster({0: 1_000, 1: 1_000}, {2: 10}).grow_old()
    assert cluster.rounds(10) == []


def test_a_move_that_failed_is_asked_for_again() -> None:
    """It rests only when it was made: the target may have died before it took the bundle."""
    cluster = Cluster(dict.fromkeys(range(8), 1000), {8: 1_000}, {9: 1_000}).grow_old()
    cluster.moves_fail = True
    failed = cluster.rounds(20)
    assert len({move.bundle for move in failed}) < len(failed)
    cluster.moves_fail = False
    assert cluster.rounds(20)
    assert max(cluster.busy().values()) - min(cluster.busy().values()) <= 10


def told(
    shedding: Shedding, at_ms: int, **wanted: float | tuple[float, dict[Bundle, BundleLoad]]
) -> dict[str, BrokerReport]:
    """Reports of brokers: percent of a core, or that with the bundles; counted by `shedding`."""
    reports = {}
    for broker, each in wanted.items():
        percent, bundles = each if isinstance(each, tuple) else (each, {})
        urls = BrokerUrls(Addresses(plain=f"pulsar://{broker}", http=f"http://{broker}"))
        rate = sum(load.rate_in for load in bundles.values())
        load = Load(bundles=len(bundles), rate_in=rate, cpu_percent=percent, of_bundles=bundles)
        reports[broker] = BrokerReport(urls, load, reported_ms=at_ms)
    shedding.told(reports, at_ms)
    return reports


def anywhere(_: Bundle) -> frozenset[str]:
    return frozenset({"b0", "b1", "b2"})


BUSY = {bundle(number): BundleLoad(1_000, producers=1) for number in range(6)}


def overloaded(others: Mapping[str, float]) -> tuple[Shedding, int]:
    """A view in which b0 has had too much to do in enough reports, and nothing was decided for it yet."""
    shedding, at_ms = Shedding(), 0
    for _ in range(2 + NEW_MS // _REPORT_MS):
        at_ms += _REPORT_MS
        told(shedding, at_ms, b0=(60.0, BUSY), **others)
        shedding.decide(lambda _: None, at_ms)
    assert shedding.overloaded("b0")
    return shedding, at_ms


def test_a_bundle_without_load_is_not_moved() -> None:
    """Its broker is busy with something else, and would be as busy without it."""
    idle = {bundle(number): BundleLoad(producers=1) for number in range(6)}
    shedding, at_ms = Shedding(), 0
    for _ in range(2 + NEW_MS // _REPORT_MS):
        at_ms += _REPORT_MS
        told(shedding, at_ms, b0=(60.0, idle), b1=(1.0, {bundle(9): BundleLoad(producers=1)} | idle))
        assert shedding.decide(anywhere, at_ms) == []
    assert shedding.overloaded("b0")


def test_one_report_moves_once() -> None:
    """Decisions come every second, reports every five: after a move that failed, a new report must ask."""
    shedding, at_ms = overloaded({"b1": 1.0, "b2": 5.0})
    assert shedding.decide(anywhere, at_ms)
    shedding.ended(Shed(bundle(0), "b0", "b1", LOAD), at_ms, made=False)
    assert shedding.decide(anywhere, at_ms + 1_000) == []


def test_a_broker_whose_report_is_of_before_its_last_move_gets_nothing() -> None:
    """It seems to have less to do than it has."""
    shedding, at_ms = overloaded({"b1": 1.0, "b2": 5.0})
    assert {move.target for move in shedding.decide(anywhere, at_ms)} == {"b1", "b2"}
    shedding.ended(Shed(bundle(99), "b9", "b1", LOAD), at_ms, made=True)
    assert {move.target for move in shedding.decide(anywhere, at_ms)} == {"b2"}


@pytest.mark.parametrize("changed", [False, True])
def test_a_report_across_a_change_does_not_count(changed: bool) -> None:
    """The broker got or gave a bundle for another reason, for instance at a look-up."""
    shedding, at_ms = Shedding(), 0
    for percent in (1.0,) * (NEW_MS // _REPORT_MS) + (90.0, 90.0):
        at_ms += _REPORT_MS
        more = {bundle(9): BundleLoad(1_000, producers=1)} if changed and percent > 1.0 else {}
        more = more if at_ms == NEW_MS + 2 * _REPORT_MS else {}
        told(shedding, at_ms, b0=(percent, BUSY | more), b1=1.0)
        shedding.decide(lambda _: None, at_ms)
    assert shedding.overloaded("b0") is not changed

"""What the leader may do, judged by what is true: the moves and splits of a story are checked as they are
made.

The product decides by reports, which are late. So where the truth counts, a check waits until nothing has
disturbed the brokers concerned for as long as reports take to tell it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from magnetar.base.names import TopicName
from magnetar.broker.balance.balance_rules import DECISION_MS, STALE_MS
from magnetar.broker.balance.settings import BalanceSettings, SheddingStrategy
from magnetar.broker.balance.shedding import CALM_POINTS, LOAD, Shed
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.records import MOVES, NAMESPACES, BrokerReport, BrokerUrls, decode_move
from magnetar.metadata import keys
from sim.balance.demand import RATE_OF_A_POINT, Demand

if TYPE_CHECKING:
    from sim.balance.brokers import BalancedBroker
    from sim.cluster.store import StoreNode

_MS: Final = 1_000
_S: Final = 1_000_000
_LATE_US: Final = 2_500 * _MS
"""A report is looked at once a second, and its way may take a second attempt."""
_CHANGED_US: Final = 1_000 * _MS
"""Time that a change of the leader or of an owner may take to be seen."""
_TRUE_US: Final = 26 * _S
"""After so long without a disturbance the averages of reports are the truth."""
_MOVES_US: Final = 3 * _S
"""After so long a change of owner is not that of a move which the leader asked for."""
_SLACK: Final = 4.0
"""Points by which reports may miss it."""
_QUIET_POINTS: Final = 10.0
"""UNIFORM: a thousand messages per second."""


class _Told(NamedTuple):
    """A report, as it was written."""

    at_us: int
    points: float


class MoveWatch:
    """The watch of one story."""

    def __init__(
        self,
        node: StoreNode,
        demand: Demand,
        settings: BalanceSettings,
        owners: Callable[[], Iterator[tuple[Bundle, str]]],
        violated: Callable[[str, str], None],
    ) -> None:
        """`owners`: the records of owners as they are."""
        self.aims: deque[Callable[[BalancedBroker, Shed], None]] = deque()
        """What is to happen at the next moves, just before each."""
        self.splits: dict[Bundle, BalancedBroker] = {}
        """Splits under way."""
        self.moves: list[tuple[int, Shed]] = []
        """Moves that were asked for, with their times."""
        self.split_pause_s = 0.0
        """How long a broker hangs between its decision to split a bundle and the split."""
        self.steady_us: int | None = None
        """Since when nothing disturbs anything."""
        self._node = node
        self._world = node.world
        self._demand = demand
        self._settings = settings
        self._owners = owners
        self._violated = violated
        self._told: dict[str, deque[_Told]] = {}
        self._disturbed: dict[str, int] = {}
        self._owner_of: dict[Bundle, str] = {}
        self._owner_changed: dict[Bundle, int] = {}
        self._leader_changed = 0
        self._rests: set[tuple[object, Bundle]] = set()
        self._foreign: set[tuple[Bundle, str]] = set()
        """Bundles that had another owner when their move to that broker was asked for."""

    # -- what happens ------------------------------------------------------------------------------

    def disturb(self, broker: BalancedBroker, shed: Shed) -> bool:
        """Whether something was to happen at this move; it has."""
        if not self.aims:
            return False
        self.aims.popleft()(broker, shed)
        return True

    def disturbed(self, *broker_ids: str) -> None:
        """Their next reports do not tell the truth."""
        for each in broker_ids:
            self._disturbed[each] = self._world.now_us

    def written(self, path: str, data: bytes | None) -> None:
        """From the store."""
        if path == keys.LEADER:
            self._leader_changed = self._world.now_us
        elif path.startswith(f"{keys.BROKERS}/"):
            self._report(path.removeprefix(f"{keys.BROKERS}/"), data)
        elif path.startswith(f"{NAMESPACES}/") and path.count("/") == 4:
            self._owner(Bundle.parse(path.removeprefix(f"{NAMESPACES}/")), data)
        elif path.startswith(f"{MOVES}/") and data is not None and path.count("/") == 5:
            self._goes(Bundle.parse(path.removeprefix(f"{MOVES}/")), decode_move(data))

    def _report(self, broker_id: str, data: bytes | None) -> None:
        if data is None:
            self._told.pop(broker_id, None)
            self.disturbed(broker_id)
            return
        if broker_id not in self._told:
            self.disturbed(broker_id)
        load = BrokerReport.decode(data).load
        is_uniform = self._settings.strategy is SheddingStrategy.UNIFORM
        points = load.rate_in / RATE_OF_A_POINT if is_uniform else load.wanted_percent
        told = self._told.setdefault(broker_id, deque(maxlen=self._settings.hits))
        told.append(_Told(self._world.now_us, points))

    def _owner(self, bundle: Bundle, data: bytes | None) -> None:
        before = self._owner_of.pop(bundle, "")
        after = "" if data is None else BrokerUrls.decode(data).broker_id
        if after:
            self._owner_of[bundle] = after
        self._owner_changed[bundle] = self._world.now_us
        since_us = self._world.now_us - _MOVES_US
        if not any(shed.bundle == bundle and at_us > since_us for at_us, shed in self.moves[-40:]):
            self.disturbed(*filter(None, (before, after)))

    def _goes(self, bundle: Bundle, to: str) -> None:
        if (bundle, to) in self._foreign:
            self._violated("foreign", f"{bundle} was sent to {to} by a decision about another owner")
        for parent, broker in self.splits.items():
            if parent.overlaps(bundle) and parent != bundle and to not in ("", broker.id):
                self._check_part(parent, bundle, broker.id, to)

    # -- what must hold ----------------------------------------------------------------------------

    def asked(self, broker: BalancedBroker, shed: Shed, decided_us: int) -> None:
        """A move goes out."""
        now_us = self._world.now_us
        self._world.note(broker.name, "moves", shed.bundle, shed.source, shed.target, shed.reason)
        self._foreign.discard((shed.bundle, shed.target))
        if now_us - decided_us > DECISION_MS * _MS + 100 * _MS:
            self._violated("old decision", f"{shed} was decided {(now_us - decided_us) // _MS} ms ago")
        if not self._node.is_alive(broker.store.session):
            # The store takes nothing of it.
            return
        self._check_leader(broker)
        for each in (shed.source, shed.target):
            told = self._told.get(each)
            if told and decided_us - told[-1].at_us > STALE_MS * _MS + _LATE_US:
                self._violated("stale", f"{shed}: {each} did not report")
        owner = self._owner_of.get(shed.bundle, "")
        if owner and owner != shed.source and now_us - self._owner_changed[shed.bundle] > 100 * _MS:
            self._foreign.add((shed.bundle, shed.target))
            return
        if shed.reason == LOAD:
            self._check_load(broker, shed, decided_us)
        if self.steady_us is not None:
            self._violated("restless", f"{shed} although nothing had changed for long")
        self.moves.append((now_us, shed))

    def _check_leader(self, broker: BalancedBroker) -> None:
        parent, name = keys.LEADER.rsplit("/", 1)
        record = self._node.nodes.get(parent, name)
        if record is not None and record.session == broker.store.session:
            return
        if self._world.now_us - self._leader_changed > _CHANGED_US:
            self._violated("leader", f"{broker.name} moves bundles and does not lead")

    def _check_load(self, broker: BalancedBroker, shed: Shed, decided_us: int) -> None:
        least = _QUIET_POINTS if self._settings.strategy is SheddingStrategy.UNIFORM else CALM_POINTS
        told = [each.points for each in self._told.get(shed.source, ()) if each.at_us <= decided_us]
        if told and min(told) <= least:
            self._violated("peak", f"{shed}, which reported {told}")
        rest = (broker.process, shed.bundle)
        if rest in self._rests:
            self._violated("no rest", f"{shed}, and it was moved for its load before")
        self._rests.add(rest)
        if self._is_true(shed.source, shed.target):
            share = self._demand.points(self._topics_of(shed.bundle))
            left, then = self.points(shed.source) - share, self.points(shed.target) + share
            if then > left + _SLACK:
                self._violated("worse", f"{shed}: {left:.0f} points stay, the other one has {then:.0f}")

    def _check_part(self, parent: Bundle, part: Bundle, own: str, other: str) -> None:
        if not self._is_true(own, other):
            return
        share = self._demand.points(self._topics_of(part))
        left, then = self.points(own) - share, self.points(other) + share
        if then > left + self._settings.threshold_points + _SLACK:
            self._violated("part", f"{part} of {parent}: {left:.0f} stay, {other} has {then:.0f}")

    def _is_true(self, *broker_ids: str) -> bool:
        """Whether reports have told for long enough what is."""
        since_us = self._world.now_us - _TRUE_US
        return all(self._disturbed.get(each, 0) < since_us for each in broker_ids)

    # -- what is -----------------------------------------------------------------------------------

    def _topics_of(self, bundle: Bundle) -> Iterator[TopicName]:
        return (topic for topic in self._demand.rates if bundle.has(topic))

    def points(self, broker_id: str) -> float:
        """What a broker has to do, by the records of owners."""
        own = (bundle for bundle, owner in self._owners() if owner == broker_id)
        return sum(self._demand.points(self._topics_of(bundle)) for bundle in own)

    def check_even(self, broker_ids: list[str]) -> None:
        """Nothing that could be moved keeps a broker busy. UNIFORM has another measure, which is not looked
        at."""
        if self._settings.strategy is SheddingStrategy.UNIFORM:
            return
        points = {each: self.points(each) for each in broker_ids}
        bound = max(CALM_POINTS, sum(points.values()) / len(points) + self._settings.threshold_points)
        moved = {shed.bundle for _, shed in self.moves}
        least = min(points, key=lambda each: points[each])
        for bundle, owner in self._owners():
            share = self._demand.points(self._topics_of(bundle))
            if points[owner] <= bound + _SLACK or bundle in moved or not share:
                continue
            if points[least] + share + _SLACK < points[owner] - share:
                self._violated("uneven", f"{bundle} stays at {owner}: {points}")

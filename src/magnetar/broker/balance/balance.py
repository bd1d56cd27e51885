"""Keeps the load of brokers even: carries out what `shedding.py` and `splitting.py` decide.

Every broker follows the reports of all; the leader moves bundles, and each broker splits its own. Moves and
splits go the ways that operators' go, so they are as safe: see docs/decisions/0035-load-manager.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MagnetarError
from magnetar.base.names import NamespaceName
from magnetar.broker.balance.balance_rules import RULES, BalanceRules
from magnetar.broker.balance.last_moves import LastMove, LastMoves
from magnetar.broker.balance.leadership import Leadership
from magnetar.broker.balance.load_meter import LoadMeter
from magnetar.broker.balance.settings import SplitAlgorithm
from magnetar.broker.balance.shedding import Shed, Shedding
from magnetar.broker.balance.splits import split, targets
from magnetar.broker.balance.splitting import Splitting, cut, upper_part
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.records import Load
from magnetar.broker.ownership.states import BundleState
from magnetar.broker.policies.bundles import ranges
from magnetar.observability.metrics import Exposition, labels
from magnetar.runtime.tasks import gathered

if TYPE_CHECKING:
    from magnetar.broker.ownership.owners import Owners
    from magnetar.broker.ports import BrokerPort

_log = logging.getLogger("magnetar.broker.balance")

ROUND_S: Final = 1.0
"""Between two looks at the reports."""
_MOVED_TOGETHER: Final = 8
"""Bundles that the leader moves at the same time."""

_MISPLACED_ROUNDS: Final = 5
"""Rounds after which a bundle leaves a broker that may not have it: a primary broker that only starts anew
may be back by then."""


class Balance:
    """One broker's part."""

    def __init__(
        self, broker: BrokerPort, owners: Owners, meter: LoadMeter, rules: BalanceRules = RULES
    ) -> None:
        self.shedding = Shedding(rules)
        self.splitting = Splitting()
        self.leadership = Leadership(
            broker.store, owners.urls, takes_part=self._takes_part, spawn=owners.tasks.spawn, rules=rules
        )
        self._rules = rules
        self.moved = 0
        """Bundles that this broker, as leader, has had moved since its start."""
        self.relieved = 0
        """Decisions of this broker, as leader, that moved something."""
        self.split_count = 0
        """Bundles of its own that this broker has split."""
        self._last_moves = LastMoves(broker.store)
        self._broker = broker
        self._owners = owners
        self._meter = meter
        self._split_at = 0
        """The report by which splits were decided last."""
        self._decided_ms = 0.0
        self._misplaced: dict[Bundle, int] = {}
        """Rounds in a row in which policies did not allow a bundle here."""

    @property
    def leader(self) -> str:
        """Id of the broker that leads, as far as it is known; "": there is none."""
        return self.leadership.leader

    async def confirm_leads(self) -> bool:
        """Whether this broker leads, as the record says now. Raises MetadataError."""
        return await self.leadership.confirm()

    async def leave(self) -> None:
        """Another broker may lead from now on. Raises MetadataError."""
        await self.leadership.leave()

    def begin(self) -> None:
        """Begins the rounds."""
        self.leadership.begin()
        self._owners.tasks.every(ROUND_S, self.round)

    def close(self) -> None:
        """Stops watching."""
        self.leadership.close()

    def _takes_part(self) -> bool:
        owners = self._owners
        return bool(owners.ownership.session) and owners.peers.shown and not owners.reporting.leaving

    def _allowed(self, bundle: Bundle) -> frozenset[str] | None:
        owners = self._owners
        able = owners.allowed(bundle) & {each.broker_id for each in owners.peers.able()}
        # A move never puts namespaces of a group closer together.
        return owners.rules.groups.preferred(bundle.namespace, able)

    async def round(self) -> None:
        """Looks at the reports, and does what they ask for. Raises MetadataError."""
        if not self._takes_part() or self._owners.contact.away:
            return
        self.shedding.settings = self.splitting.settings = self._broker.config.balance
        now_ms = self._broker.clock.monotonic_ms()
        self.shedding.told({each.broker_id: each for each in self._owners.peers.able()}, now_ms)
        moves = self.shedding.decide(self._allowed, now_ms)
        if not self.leadership.leader:
            await self.leadership.confirm()
        if moves and self._is_due(now_ms) and self.leadership.leads and await self.leadership.confirm():
            # The record was read just now: a former leader does not move the same bundles.
            self._decided_ms = now_ms
            self.relieved += 1
            for start in range(0, len(moves), _MOVED_TOGETHER):
                await gathered(self._move(each) for each in moves[start : start + _MOVED_TOGETHER])
            await self._last_moves.write()
        await self._split_own(now_ms)
        await self._expel()

    def _is_due(self, now_ms: float) -> bool:
        pause_ms = self.shedding.settings.interval_minutes * 60_000
        return not self._decided_ms or now_ms - self._decided_ms >= pause_ms

    def _still_counts(self) -> bool:
        """Whether the last decision may be carried out: it is not old, and this broker still leads."""
        age_ms = self._broker.clock.monotonic_ms() - self._decided_ms
        return self._rules.decision_counts(age_ms, leads=self.leadership.leads)

    async def _move(self, shed: Shed) -> None:
        owners, made = self._owners, False
        try:
            if not (self._still_counts() and owners.peers.takes_bundles(shed.target)):
                return
            named = shed.source if self._rules.names_the_owner() else ""
            made = await owners.move(shed.bundle, shed.target, owner=named)
            if made:
                self.moved += 1
                self._last_moves.add(LastMove.of(shed, self._broker.clock.now_ms()))
                _log.info("%s was moved from %s to %s: %s", *shed)
        except MagnetarError as error:
            # The reports will say whether it is still needed.
            _log.warning("%s could not be moved from %s: %s", shed.bundle, shed.source, error)
        finally:
            self.shedding.ended(shed, self._broker.clock.monotonic_ms(), made=made)

    def collect_metrics(self, out: Exposition) -> Iterable[None]:
        """A collector of `/metrics`."""
        report = self._owners.reporting.last
        load = Load() if report is None else report.load
        of = labels(("cluster", self._broker.config.cluster), ("broker", self._owners.broker_id))
        memory = 100 * load.memory_mib / load.memory_limit_mib if load.memory_limit_mib else 0.0
        out.gauge(
            "pulsar_lb_cpu_usage",
            "Percent of one core that the broker used, as last reported.",
            load.cpu_percent,
            of,
        )
        out.gauge("pulsar_lb_memory_usage", "Resident memory, in percent of the machine's.", memory, of)
        out.gauge("pulsar_lb_bandwidth_in_usage", "Bytes published.", load.bytes_in, of)
        out.gauge("pulsar_lb_bandwidth_out_usage", "Bytes delivered.", load.bytes_out, of)
        out.counter(
            "pulsar_lb_unload_broker_total",
            "Decisions of this broker, as leader, by which bundles left brokers.",
            self.relieved,
            of,
        )
        out.counter(
            "pulsar_lb_unload_bundle_total",
            "Bundles that this broker, as leader, has had moved.",
            self.moved,
            of,
        )
        out.counter(
            "pulsar_lb_bundles_split_total", "Bundles that this broker has split.", self.split_count, of
        )
        out.gauge(
            "magnetar_lb_leads",
            "Whether this broker evens the load of all: 0 or 1.",
            self.leadership.leads,
            of,
        )
        return ()

    async def _expel(self) -> None:
        """Gives away bundles that isolation policies do not allow here any more."""
        owners = self._owners
        if owners.draining or not owners.rules.in_force:
            self._misplaced.clear()
            return
        wrong = [
            bundle
            for bundle in owners.ownership.having(BundleState.OWNED)
            if owners.broker_id not in owners.allowed(bundle) and not owners.rules.stays(bundle.namespace)
        ]
        self._misplaced = {bundle: self._misplaced.get(bundle, 0) + 1 for bundle in wrong}
        for bundle in wrong[:_MOVED_TOGETHER]:
            if self._misplaced[bundle] < _MISPLACED_ROUNDS:
                continue
            try:
                if await owners.expel(bundle):
                    _log.info("%s left for a broker that isolation policies allow", bundle)
            except MagnetarError as error:
                # The next round tries again.
                _log.warning("%s could not leave: %s", bundle, error)

    # -- splits ------------------------------------------------------------------------------------

    async def _split_own(self, now_ms: float) -> None:
        report = self._owners.reporting.last
        if report is None or report.reported_ms == self._split_at or self._owners.draining:
            return
        self._split_at = report.reported_ms
        loads = {
            bundle: load
            for bundle, load in self._meter.of_bundles.items()
            if self._owners.ownership.serves(bundle)
        }
        algorithm = self.splitting.settings.algorithm
        for bundle in self.splitting.look(loads, await self._counts(loads)):
            await self._split(bundle, algorithm)
        hot = self.shedding.too_big(self._owners.broker_id, self._allowed, now_ms)
        if hot is not None and self.splitting.settings.split and self._owners.ownership.serves(hot.bundle):
            counts = await self._counts([hot.bundle])
            if counts[hot.bundle.namespace] < self.splitting.settings.bundles_max:
                await self._split(hot.bundle, SplitAlgorithm.FLOW, other=hot.target, room=hot.room)

    async def _counts(self, bundles: Iterable[Bundle]) -> dict[NamespaceName, int]:
        policies = self._broker.policies
        names = {bundle.namespace for bundle in bundles}
        return {name: sum(1 for _ in ranges(await policies.namespace(name))) for name in names}

    async def _split(
        self, bundle: Bundle, algorithm: SplitAlgorithm, *, other: str = "", room: float = 0.0
    ) -> None:
        """`other`: the broker that gets a part if it has `room`, see `TooBig`; "": this one keeps both."""
        topics = {name: cost for name, cost in self._meter.of_topics.items() if bundle.has(name)}
        at = cut(bundle, algorithm, topics)
        if at is None:
            return
        fits = partial(self._rules.part_fits, room=room)
        to = targets(self._owners.broker_id, other, upper=upper_part(topics, at), fits=fits)
        may_split = partial(self._rules.may_split, bundles_max=self.splitting.settings.bundles_max)
        try:
            if await split(self._broker, self._owners, bundle, at, to, may_split):
                self.split_count += 1
                _log.info("%s was split at 0x%08x; its parts go to %s and %s", bundle, at, *to)
        except MagnetarError as error:
            # If the ranges were changed, look-ups give the parts owners. Else the next report asks.
            _log.warning("%s could not be split: %s", bundle, error)

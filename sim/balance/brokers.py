"""A broker that takes part in keeping the load even: the product's balance and its meter, on simulated
work."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from magnetar.broker.balance.balance import Balance
from magnetar.broker.balance.load_meter import LoadMeter, Used
from magnetar.broker.balance.settings import BalanceSettings, SplitAlgorithm
from magnetar.broker.balance.shedding import Shed
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.owners import Owners
from magnetar.broker.ownership.peers import Probe
from magnetar.broker.ownership.records import BrokerUrls, Load
from sim.balance.demand import RATE_OF_A_POINT, Demand
from sim.balance.watching import MoveWatch
from sim.owners.broker import SimBroker
from sim.rules import RulesInForce

_MEMORY: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class _Config:
    """What the balance reads of a broker's settings."""

    balance: BalanceSettings
    cluster: str = "sim"


class BalancedBroker(SimBroker):
    """One broker over its lives. The story sets what is declared here."""

    config: _Config
    demand: Demand
    watch: MoveWatch
    peak_points: float = 0.0
    """Work that no topic asks for, at the moment."""
    silent: asyncio.Event | None = None
    """Set when its reports, which do not come, go on."""
    _cpu_s: float = 0.0

    def set_up(self, settings: BalanceSettings, demand: Demand, watch: MoveWatch) -> None:
        """To be called before it starts."""
        self.config, self.demand, self.watch = _Config(settings), demand, watch

    def work(self, passed_s: float) -> None:
        """Serves what was asked for meanwhile, as far as a core can."""
        if not (self.process.is_up and self.serves) or self.process.held is not None:
            return
        rates = {topic: self.demand.rates[topic.name] for topic in self.topics.values() if not topic.closed}
        points = sum(rates.values()) / RATE_OF_A_POINT
        part = min(1.0, 100.0 / points) if points else 0.0
        for topic, rate in rates.items():
            topic.messages_in += round(rate * part * passed_s)
        self._cpu_s += (points * part + self.peak_points) / 100 * passed_s

    def start(self) -> None:
        if not self.process.is_up:
            self.silent = None
        super().start()

    def leads(self) -> bool:
        """Whether it is there and believes that it leads."""
        if not (self.process.is_up and self.serves):
            return False
        balance = self.owners.balance
        return balance is not None and balance.leader == self.id

    def _new_owners(self, urls: BrokerUrls, probe: Probe) -> Owners:
        meter = LoadMeter(
            self,  # type: ignore[arg-type]  # as far as it is used
            self.clock,
            lambda name: owners.ownership.bundle_of(name),
            lambda: Used(self._cpu_s, 0.0, _MEMORY),
        )

        async def load() -> Load:
            if self.silent is not None:
                await self.silent.wait()
            return await meter.read()

        owners = WatchedOwners(
            self,  # type: ignore[arg-type]  # as above
            urls,
            socket=self.name,
            probe=probe,
            load=load,
            version="",
            ownership_rules=RulesInForce.ownership,
        )
        owners.balance = owners.watched = WatchedBalance(self, owners, meter)
        return owners


class WatchedOwners(Owners):
    """Tells of the moves that the leader asks for."""

    watched: WatchedBalance

    async def move(self, bundle: Bundle, to: str = "", *, owner: str = "") -> bool:
        shed = self.watched.carried.get(bundle)
        if shed is not None and to == shed.target:
            self.watched.tell(shed)
        return await super().move(bundle, to, owner=owner)


class WatchedBalance(Balance):
    """Tells what it is about to do, and may be disturbed there."""

    def __init__(self, host: BalancedBroker, owners: Owners, meter: LoadMeter) -> None:
        super().__init__(host, owners, meter, RulesInForce.balance)  # type: ignore[arg-type]  # as far as it is used
        self.carried: dict[Bundle, Shed] = {}
        """Moves that are being made."""
        self._host = host

    def tell(self, shed: Shed) -> None:
        """The move goes out now."""
        self._host.watch.asked(self._host, shed, int(self._decided_ms * 1_000))

    async def _move(self, shed: Shed) -> None:
        self.carried[shed.bundle] = shed
        if self._host.watch.disturb(self._host, shed):
            # A pause begins between two steps.
            await asyncio.sleep(0)
        try:
            await super()._move(shed)
        finally:
            del self.carried[shed.bundle]

    async def _split(
        self, bundle: Bundle, algorithm: SplitAlgorithm, *, other: str = "", room: float = 0.0
    ) -> None:
        watch = self._host.watch
        watch.splits[bundle] = self._host
        try:
            await asyncio.sleep(watch.split_pause_s)
            await super()._split(bundle, algorithm, other=other, room=room)
        finally:
            del watch.splits[bundle]

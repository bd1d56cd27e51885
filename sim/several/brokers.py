"""Brokers that share topics and coordinators, and a table of the records of owners.

How the product agrees on owners is the scenario `owners`. Here a record may go while its holder is paused,
and the holder hears of it late: until then it believes that it is the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from magnetar.base.names import TopicName
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.place import HERE, TopicPlace
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.broker.transactions.several import SharedTransactions
from magnetar.metadata.contact import Contact
from sim.rules import RulesInForce
from sim.transactions.life import Life


class Table:
    """The records of all owners."""

    def __init__(self) -> None:
        self.records: dict[str, SharedLife] = {}
        """By the name of a topic or of a coordinator's partition."""

    def owner(self, name: str) -> SharedLife | None:
        """The broker that has it."""
        return self.records.get(name)

    def claim(self, name: str, life: SharedLife) -> None:
        """It has no record."""
        assert name not in self.records
        assert name not in life.held, "it hears first that it lost it"
        self.records[name] = life
        life.held.add(name)

    def drop(self, life: SharedLife) -> None:
        """Its session has ended."""
        for name in [name for name, owner in self.records.items() if owner is life]:
            del self.records[name]


class SimOwners:
    """The table as one broker sees it."""

    def __init__(self, life: SharedLife) -> None:
        self._life = life
        self.contact = Contact(life.broker.store)

    async def begin(self) -> None:
        """It claims what it is asked for."""

    async def drain(self) -> None:
        """Not asked here."""

    async def close(self) -> None:
        """Not asked here."""

    def has(self, name: TopicName) -> bool:
        return str(name) in self._life.held

    def check_owned(self, name: TopicName) -> None:
        if not self.has(name):
            raise ServiceNotReadyError(f"{name} is not served by this broker")

    async def admit(self, name: TopicName) -> None:
        self.check_owned(name)

    async def locate(self, name: TopicName, *, authoritative: bool) -> TopicPlace:
        assert authoritative, "no other broker chooses"
        await asyncio.sleep(self._life.world.random.choice((0.0, 0.001, 0.01)))
        life, table, key = self._life, self._life.table, str(name)
        owner = table.owner(key)
        if owner is None:
            if key in life.held:
                raise ServiceNotReadyError(f"{name} was lost, and this broker does not know it yet")
            table.claim(key, life)
            return HERE
        if owner is life:
            self.check_owned(name)
            return HERE
        address = f"{owner.process.name.replace(' ', '-')}:8080"
        return TopicPlace(BrokerUrls(Addresses(plain=f"pulsar://{address}", http=f"http://{address}")))

    async def require(self, names: Iterable[TopicName]) -> None:
        raise AssertionError(names)


class SharedLife(Life):
    """From a start of one of several brokers to its kill."""

    table: Table

    def __init__(self, table: Table, name: str, *arguments: Any) -> None:
        self.table = table
        self.held: set[str] = set()
        """What it believes to have."""
        super().__init__(*arguments)
        self.process.name = name
        self.process.ends.append(self._gone)

    @property
    def owned(self) -> set[str]:
        """What it has."""
        return {name for name in self.held if self.table.owner(name) is self}

    def joins(self) -> None:
        broker = self.broker
        broker.policies.documents.share()
        broker.owners = SimOwners(self)  # type: ignore[assignment]  # as far as it is used
        kept = RulesInForce.parts_kept(broker.store)
        broker.transactions = SharedTransactions(broker, RulesInForce.txns, kept)

    def _gone(self) -> None:
        """Its session ends some time after it."""
        random = self.world.random
        self.world.at(random.choice((10_000, 300_000, 2_000_000)), self.table.drop, self)

    def release(self, name: str) -> None:
        """What it has is to go to another broker: the record goes when it is closed."""
        if name not in self.held:
            return
        self.held.discard(name)

        async def close() -> None:
            await self._close(name)
            if self.table.owner(name) is self and name not in self.held:
                # A record that was made since is not this one's: its session ended meanwhile.
                del self.table.records[name]

        self.do(close)

    async def _close(self, name: str) -> None:
        topic = TopicName.parse(name)
        loaded = self.broker.topics.get(name)
        if loaded is not None:
            loaded.disconnect_clients()
        await self.broker.unload(topic)

    def session_lost(self) -> None:
        """It hears that its session is over, and with it all that it had."""
        lost = sorted(self.held - self.owned)
        self.held = self.owned
        for name in lost:
            self.do(partial(self._close, name))

"""Owners for a broker on fakes that is the only one of its cluster, or whose bundles are elsewhere."""

from __future__ import annotations

from magnetar.base.names import TopicName
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.place import HERE, TopicPlace
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.broker.service import Broker
from magnetar.broker.transactions.several import SharedTransactions

ELSEWHERE = TopicPlace(BrokerUrls(Addresses(plain="pulsar://other:6650", http="http://other:8080")))


class OnlyOwner:
    """It has everything but what is `away`."""

    def __init__(self) -> None:
        self.away: set[str] = set()

    async def begin(self) -> None:
        """It has everything already."""

    async def drain(self) -> None:
        """No other broker takes anything."""

    async def close(self) -> None:
        """It holds nothing."""

    def has(self, name: TopicName) -> bool:
        return str(name) not in self.away

    def check_owned(self, name: TopicName) -> None:
        if not self.has(name):
            raise ServiceNotReadyError(f"{name} is not served by this broker")

    async def admit(self, name: TopicName) -> None:
        self.check_owned(name)

    async def confirm(self, name: TopicName) -> None:
        self.check_owned(name)

    async def locate(self, name: TopicName, *, authoritative: bool) -> TopicPlace:
        return HERE if self.has(name) else ELSEWHERE


def share(broker: Broker) -> OnlyOwner:
    """Makes it a broker of a cluster, before it starts."""
    owners = OnlyOwner()
    broker.owners = owners  # type: ignore[assignment]  # as far as it is used
    broker.transactions = SharedTransactions(broker)
    return owners

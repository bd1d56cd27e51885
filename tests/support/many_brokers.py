"""A broker in memory that is one of several: the others are the records that a test writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.owners import Owners
from magnetar.broker.ownership.records import BrokerReport, BrokerUrls, Load, owner_path
from magnetar.metadata import keys
from support.admin_api import AdminApi

OTHER = "b:8080"
"""Id of the other broker."""


def urls_of(broker_id: str) -> BrokerUrls:
    return BrokerUrls(
        Addresses(plain=f"pulsar://{broker_id.partition(':')[0]}:6650", http=f"http://{broker_id}")
    )


async def _idle() -> Load:
    return Load()


class OneOfSeveral(AdminApi):
    """The broker `127.0.0.1:8080`, its admin API, and a broker `b:8080` that is alive."""

    def __init__(self) -> None:
        super().__init__()

        async def alive(_host: str, _port: int) -> bool:
            return False

        self.owners = Owners(
            self.broker, urls_of("127.0.0.1:8080"), socket="here", probe=alive, load=_idle, version="test"
        )
        self.broker.policies.documents.share()
        self.broker.owners = self.owners

    async def other_is_there(self, report: BrokerReport | None = None) -> None:
        """Writes the other one's report, and has this broker read it."""
        told = report or BrokerReport(urls_of(OTHER))
        await self.store.put(keys.broker(OTHER), told.encode())
        await self.owners.peers.load()

    async def other_owns(self, bundle: Bundle) -> None:
        """Writes the other one's record of a bundle."""
        await self.store.put(owner_path(bundle), urls_of(OTHER).encode())


def with_one_of_several(story: Callable[[OneOfSeveral], Awaitable[None]]) -> None:
    """Runs a story on a started broker and closes everything."""

    async def run() -> None:
        api = OneOfSeveral()
        await api.start()
        try:
            await story(api)
        finally:
            await api.close()

    asyncio.run(run())

"""A broker on fakes as one of two on a cluster. The other one is its records, and answers to moves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.owners import Owners
from magnetar.broker.ownership.records import MOVES, BrokerReport, BrokerUrls, Load, move_path, owner_path
from magnetar.metadata.store import Notification
from support.admin_api import AdminApi, with_api

OTHER_URL: Final = "http://other:8080"
_HERE: Final = BrokerUrls(Addresses(plain="pulsar://127.0.0.1:6650", http="http://127.0.0.1:8080"))
_OTHER: Final = BrokerUrls(Addresses(plain="pulsar://other:6650", http=OTHER_URL))


async def _idle() -> Load:
    return Load()


class OtherBroker:
    """Has bundles, and gives them up when they are to move."""

    def __init__(self, api: AdminApi) -> None:
        self.moved: list[Bundle] = []
        """Bundles that it was asked to give up."""
        self._api = api
        self._tasks = api.tasks
        self._owned: dict[str, Bundle] = {}
        """By the path at which they are asked for."""
        api.store.watch(MOVES, self._asked)

    def join(self) -> None:
        """Puts it into the table of brokers."""
        report = BrokerReport(_OTHER, Load(), draining=False, started_ms=0, version="")
        owners_of(self._api).peers.reports[_OTHER.broker_id] = report

    async def own(self, bundle: Bundle) -> None:
        """Makes it the owner."""
        self._owned[move_path(bundle)] = bundle
        await self._api.store.put(owner_path(bundle), _OTHER.encode(), ephemeral=True)

    async def own_bundle_of(self, name: TopicName) -> None:
        """Makes it the owner of the topic's bundle."""
        await self.own(await owners_of(self._api).bundle_of(name))

    def _asked(self, notification: Notification) -> None:
        bundle = self._owned.pop(notification.path, None)
        if bundle is not None:
            self.moved.append(bundle)
            self._tasks.spawn(self._api.store.delete(owner_path(bundle)))


def owners_of(api: AdminApi) -> Owners:
    """The broker's own."""
    assert api.broker.owners is not None, "it is one of several"
    return api.broker.owners


async def settled() -> None:
    """Lets everything happen that can happen by itself."""
    for _ in range(300):
        await asyncio.sleep(0)


def bundles_of(namespace: str) -> list[Bundle]:
    """The four of a new namespace."""
    bounds = [0, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF]
    name = NamespaceName.parse(namespace)
    return [Bundle(name, lower, upper) for lower, upper in itertools.pairwise(bounds)]


def on_a_shared_cluster(story: Callable[[AdminApi, OtherBroker], Awaitable[None]]) -> None:
    """Runs a story on a started broker and closes everything."""

    async def none_is_dead(_host: str, _port: int) -> bool:
        return False

    def join(api: AdminApi) -> None:
        api.broker.policies.documents.share()
        api.broker.owners = Owners(
            api.broker, _HERE, socket="here", probe=none_is_dead, load=_idle, version=""
        )

    with_api(lambda api: story(api, OtherBroker(api)), before=join)

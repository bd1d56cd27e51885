"""Which bookies take the places of members that failed."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.base.clock import ManualClock
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.pool import BookiePool
from magnetar.ledger.quorum.effects import ChooseBookies
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.registry import LiveBookies, RegisteredBookie
from magnetar.metadata.memory import MemoryMetadataStore


class _Alive:
    """These are registered."""

    def __init__(self, *names: str) -> None:
        self._live = LiveBookies(frozenset(names), frozenset())

    async def bookies(self) -> LiveBookies:
        return self._live

    async def info(self, bookie_id: str) -> RegisteredBookie | None:
        return None


@pytest.mark.parametrize(
    ("back", "chosen"),
    [({"b"}, {1: "b"}), ({"a"}, {0: "a"}), ({"a", "b"}, {0: "a", 1: "b"}), (set(), {})],
)
def test_who_is_back_takes_its_own_place(
    monkeypatch: pytest.MonkeyPatch, back: set[str], chosen: dict[int, str]
) -> None:
    """a and b failed, there is no other bookie: were b to take the place of a, it would be a member twice."""

    async def came_back(_: BookiePool, bookie: str) -> bool:
        return bookie in back

    monkeypatch.setattr(BookiePool, "came_back", came_back)

    async def story() -> None:
        ledgers = TreeLedgerRegistry(MemoryMetadataStore(ManualClock()), BookKeeperTree())
        cluster = Cluster(ledgers, _Alive("a", "b", "c"))
        choose = ChooseBookies({0: "a", 1: "b"}, frozenset("abc"))
        found = await cluster.replacements(QuorumLayout(3, 3, 2), "abc", choose, patient=False)
        assert found == chosen
        await cluster.close()

    asyncio.run(story())

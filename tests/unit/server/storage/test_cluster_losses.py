"""Lost entries that were given up in a cluster."""

from __future__ import annotations

import asyncio
import logging

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import StartupError
from magnetar.base.ids import LedgerId
from magnetar.metadata import keys
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import Stat
from magnetar.server.storage import cluster_losses
from magnetar.server.storage.cluster_losses import ClusterLosses, GivenUpRange, accept_loss, merged

SEVEN, EIGHT = LedgerId(7), LedgerId(8)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_each_broker_hears_of_what_is_given_up() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        await accept_loss(store, SEVEN, 3, 4)
        losses = ClusterLosses(store)
        await losses.begin()
        assert losses.ranges() == {SEVEN: [(3, 4)]}
        await accept_loss(store, EIGHT, 0, 9)
        await accept_loss(store, SEVEN, 5, 6)
        await accept_loss(store, SEVEN, 0, 0)
        await turns()
        assert losses.ranges() == {SEVEN: [(0, 0), (3, 6)], EIGHT: [(0, 9)]}
        await losses.close()
        await accept_loss(store, SEVEN, 1, 2)
        await turns()
        assert losses.ranges()[SEVEN] == [(0, 0), (3, 6)]

    asyncio.run(story())


def test_a_list_that_cannot_be_read_gives_up_neither_more_nor_less(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        losses = ClusterLosses(store)
        await losses.begin()
        await accept_loss(store, SEVEN, 3, 4)
        await turns()
        with caplog.at_level(logging.ERROR):
            await store.put(keys.GIVEN_UP, b'[{"ledger": 7, "first": 9, "last": 2, "at": ""}]')
            await turns()
        assert losses.ranges() == {SEVEN: [(3, 4)]}
        assert keys.GIVEN_UP in caplog.text
        await losses.close()

    asyncio.run(story())


def test_decisions_of_two_operators_count_both(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        put = store.put

        async def slower(path: str, data: bytes, *, expected_version: int | None = None) -> Stat:
            monkeypatch.setattr(store, "put", put)
            await accept_loss(store, EIGHT, 1, 1)
            return await put(path, data, expected_version=expected_version)

        monkeypatch.setattr(store, "put", slower)
        await accept_loss(store, SEVEN, 1, 1)
        losses = ClusterLosses(store)
        await losses.begin()
        assert losses.ranges().keys() == {SEVEN, EIGHT}
        await losses.close()

    asyncio.run(story())


def test_the_list_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(cluster_losses, "RANGES_MAX", 2)
        store = MemoryMetadataStore(ManualClock())
        await accept_loss(store, SEVEN, 0, 0)
        await accept_loss(store, SEVEN, 5, 5)
        with pytest.raises(StartupError, match="2 ranges of entries are given up already"):
            await accept_loss(store, SEVEN, 9, 9)
        await accept_loss(store, SEVEN, 0, 9)

    asyncio.run(story())


def test_ranges_that_touch_are_one() -> None:
    ranges = [GivenUpRange(SEVEN, 5, 6, "c"), GivenUpRange(SEVEN, 0, 4, "a"), GivenUpRange(EIGHT, 7, 7, "b")]
    ranges += [GivenUpRange(SEVEN, 2, 3, "b"), GivenUpRange(SEVEN, 8, 8, "a")]
    assert merged(ranges) == [
        GivenUpRange(SEVEN, 0, 6, "c"),
        GivenUpRange(SEVEN, 8, 8, "a"),
        GivenUpRange(EIGHT, 7, 7, "b"),
    ]

"""Listings of the embedded store that are too long for one turn of the event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import MagnetarError
from magnetar.metadata import sqlite_nodes
from magnetar.metadata.embedded import EmbeddedMetadataStore

NAMES = [f"n{number:02}" for number in range(23)]


async def opened(folder: Path) -> EmbeddedMetadataStore:
    store = EmbeddedMetadataStore.open(folder / "metadata.db", clock=ManualClock(), durable=False)
    await asyncio.gather(*(store.put(f"/a/{name}", b"") for name in NAMES))
    await store.put("/a/n05/below", b"")
    await store.put("/b", b"")
    return store


@pytest.mark.parametrize("most", [1, 5, 22, 23, 24, 5_000])
def test_all_children_are_listed_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(sqlite_nodes, "LISTED_MAX", most)

    async def story() -> None:
        store = await opened(tmp_path)
        assert await store.children("/a") == NAMES
        assert await store.children("/") == ["a", "b"]
        assert await store.children("/none") == []
        await store.close()

    asyncio.run(story())


def test_a_long_listing_leaves_turns_of_the_loop_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is made and removed meanwhile is listed or not; all else is listed once."""
    monkeypatch.setattr(sqlite_nodes, "LISTED_MAX", 5)

    async def story() -> None:
        store = await opened(tmp_path)
        listing = asyncio.ensure_future(store.children("/a"))
        await asyncio.sleep(0)
        assert not listing.done()
        await store.put("/a/n999", b"")
        await store.put("/a/n000", b"")
        await store.delete("/a/n22")
        found = await listing
        assert found == sorted(set(found))
        assert set(NAMES) - {"n22"} <= set(found) <= {*NAMES, "n999", "n000"}
        await store.close()

    asyncio.run(story())


def test_a_listing_ends_with_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_nodes, "LISTED_MAX", 5)

    async def story() -> None:
        store = await opened(tmp_path)
        listing = asyncio.ensure_future(store.children("/a"))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(MagnetarError):
            await listing

    asyncio.run(story())

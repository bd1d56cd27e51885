"""A cluster is served only on the bookies that it was written with."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import StartupError
from magnetar.metadata.bookkeeper.known_ledgers import KnownLedgers, check_known_ledgers, decode_known_ledgers
from magnetar.metadata.keys import LEDGERS_OF
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import ANY_VERSION, MUST_NOT_EXIST, Stat

SCOPE = "/magnetar/c"
FIRST = KnownLedgers("a", "/ledgers")


def test_the_first_start_writes_down_which_bookies_they_are() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        await check_known_ledgers(store, SCOPE, FIRST)
        found = await store.get(LEDGERS_OF)
        assert found is not None
        assert decode_known_ledgers(found.data, LEDGERS_OF) == FIRST
        # The same tree by another path, as with a root of the service in the URL.
        await check_known_ledgers(store, SCOPE, KnownLedgers("a", "/elsewhere/ledgers"))

    asyncio.run(story())


def test_other_bookies_are_refused() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        await check_known_ledgers(store, SCOPE, FIRST)
        with pytest.raises(StartupError, match=r"bookies of /ledgers \(instance a\).* /new \(instance b\)"):
            await check_known_ledgers(store, SCOPE, KnownLedgers("b", "/new"))

    asyncio.run(story())


def test_of_two_first_starts_one_decides() -> None:
    class Raced(MemoryMetadataStore):
        """Another broker writes between the look and the write."""

        async def put(
            self,
            path: str,
            data: bytes,
            *,
            expected_version: int | None = ANY_VERSION,
            ephemeral: bool = False,
            sequential: bool = False,
        ) -> Stat:
            if expected_version == MUST_NOT_EXIST and data != FIRST.encode():
                await super().put(path, FIRST.encode(), expected_version=MUST_NOT_EXIST)
            return await super().put(
                path, data, expected_version=expected_version, ephemeral=ephemeral, sequential=sequential
            )

    async def story() -> None:
        with pytest.raises(StartupError):
            await check_known_ledgers(Raced(ManualClock()), SCOPE, KnownLedgers("b", "/new"))

    asyncio.run(story())

"""The list of all ledgers, and the search for those that no list names, over a real store."""

from __future__ import annotations

import asyncio

from magnetar.base.clock import ManualClock
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState, encode_ledger_metadata
from magnetar.ledger.listing import existing_ledgers
from magnetar.ledger.paths import ID_GENERATOR, ledger_path
from magnetar.metadata.memory import MemoryMetadataStore


def test_every_ledger_is_listed_with_its_metadata() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        await store.put(ID_GENERATOR, b"1000")
        ids = [0, 7, 9_999, 10_000, (1 << 31) - 2, (1 << 31) - 1, (1 << 63) - 1]
        for ledger_id in ids:
            metadata = LedgerMetadata(
                state=LedgerState.OPEN,
                end=None,
                ensembles=((0, ("bookie",)),),
                created_ms=1,
                creation_token=1,
                custom={"id": str(ledger_id).encode()},
            )
            await store.put(ledger_path(ledger_id), encode_ledger_metadata(metadata))
        found = {ledger_id: metadata.custom async for ledger_id, metadata in existing_ledgers(store)}
        assert found == {ledger_id: {"id": str(ledger_id).encode()} for ledger_id in ids}
        await store.close()

    asyncio.run(story())

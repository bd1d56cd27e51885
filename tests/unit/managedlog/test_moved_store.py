"""The former places of the data folder's object store."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from uuid import UUID

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.ids import LedgerId
from magnetar.managedlog.log_metadata import LedgerRecord, LogMetadata, encode, log_path
from magnetar.managedlog.moved_store import former_places
from magnetar.metadata.keys import OFFLOAD_PLACES
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.tiered.context import OffloadContext, OffloadedCopy, OffloadedSegment, segment_name

LOG = "t/n/persistent/a"


@pytest.mark.parametrize("record", [None, b'["file:///', b"{}", b"[7]"])
def test_a_damaged_record_of_places_is_made_anew_from_the_lists(tmp_path: Path, record: bytes | None) -> None:
    """As one that was never written: the broker starts, and reads the objects of a folder that moved."""

    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        here, before = tmp_path / "new" / "offloaded", tmp_path / "old" / "offloaded"
        segment = OffloadedSegment(0, 9, 100)
        context = OffloadContext(UUID(int=1), before.as_uri(), complete=True, segments=(segment,))
        copy = OffloadedCopy(LedgerId(1), context)
        ledger = LedgerRecord(LedgerId(1), 10, 100, offload=context)
        await store.put(log_path(LOG), encode(LogMetadata(ledgers=(ledger,))))
        object_ = here / segment_name(LOG, copy, segment)
        object_.parent.mkdir(parents=True)
        object_.touch()
        if record is not None:
            await store.put(OFFLOAD_PLACES, record)
        moves: list[None] = []
        for _ in range(2):
            found = await former_places(store, here, lambda: moves.append(None))
            assert found == {before.as_uri(): here.as_uri()}
        assert len(moves) == 1
        value = await store.get(OFFLOAD_PLACES)
        assert value is not None
        assert sorted(json.loads(value.data)) == sorted((before.as_uri(), here.as_uri()))

    asyncio.run(story())

"""A topic's part is changed by its present owner only."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import TopicName
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.kept import part_path
from magnetar.broker.transactions.kept_parts import KeptParts
from magnetar.broker.transactions.mirror import Mirror
from magnetar.broker.transactions.part_writing import PartWriting
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import MUST_NOT_EXIST

TOPIC = "persistent://public/default/t"
ID = TxnId(0, 1)
OF_THE_NEXT = b'{"e":5,"o":"next"}'


@pytest.mark.parametrize("epoch", [4, 5])
def test_a_former_owner_neither_changes_nor_deletes_a_part(epoch: int) -> None:
    """It was paused, and the next owner has claimed the part; of one epoch the first to claim it has it."""

    async def story() -> None:
        clock = ManualClock()
        store = MemoryMetadataStore(clock)
        path = part_path(TopicName.parse(TOPIC).log_name, ID)
        await store.put(path, b"{}", expected_version=MUST_NOT_EXIST)
        writing = PartWriting(KeptParts(store), clock, lambda mirror: None)
        mirror = Mirror(ID, TOPIC, epoch=epoch, holder="former")
        mirror.version = 0
        await store.put(path, OF_THE_NEXT)
        mirror.durable = True
        mirror.changed()
        with pytest.raises(ServiceNotReadyError):
            await writing.save(mirror)
        with pytest.raises(ServiceNotReadyError):
            await writing.delete(mirror)
        left = await store.get(path)
        assert left is not None
        assert left.data == OF_THE_NEXT
        await store.close()

    asyncio.run(story())

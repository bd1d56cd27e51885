"""A topic's part is changed by its present owner only, and while its transaction is open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import TopicName
from magnetar.broker.errors import ServiceNotReadyError, TransactionStateError
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.kept import header_path, part_path
from magnetar.broker.transactions.kept_parts import KeptParts
from magnetar.broker.transactions.mirror import Mirror
from magnetar.broker.transactions.part_writing import PartWriting
from magnetar.broker.transactions.transaction import Transaction
from magnetar.managedlog.errors import LogFencedError
from magnetar.managedlog.log_metadata import log_path
from magnetar.managedlog.stored_log import StoredLog
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, MetadataStore, Stat, Value

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


class Log:
    """The log of a topic, as far as claims need it."""

    def __init__(self, stored: StoredLog) -> None:
        self.stored = stored
        self.fenced: list[LogFencedError] = []

    def fence(self, error: LogFencedError) -> None:
        self.fenced.append(error)


LOG = TopicName.parse(TOPIC).log_name


async def opened(store: MetadataStore) -> Log:
    """As its owner has it after it opened the log."""
    stored = await StoredLog.load(store, LOG)
    await stored.update(lambda metadata: metadata)
    return Log(stored)


async def new_part(store: MetadataStore, log: Log, holder: str) -> Mirror:
    """The coordinator made the part of a new transaction, and the owner of that log read it."""
    await store.put(part_path(LOG, ID), b"{}", expected_version=MUST_NOT_EXIST)
    mirror = Mirror(ID, TOPIC, epoch=log.stored.version, holder=holder)
    mirror.version = 0
    return mirror


def writing_to(store: MetadataStore) -> PartWriting:
    return PartWriting(KeptParts(store), ManualClock(), lambda mirror: None)


def test_a_former_owner_claims_no_part_that_is_made_later() -> None:
    """It was paused, and does not know yet that the next owner has opened the log."""

    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        former = await opened(store)
        present = await opened(store)
        mirror = await new_part(store, former, "former")
        with pytest.raises(ServiceNotReadyError):
            await writing_to(store).claim(mirror, former)
        assert len(former.fenced) == 1, "it serves the topic no longer"
        left = await store.get(part_path(LOG, ID))
        assert left is not None
        assert left.data == b"{}"
        mirror = Mirror(ID, TOPIC, epoch=present.stored.version, holder="present")
        mirror.version = 0
        await writing_to(store).claim(mirror, present)
        assert present.fenced == []
        value = await store.get(part_path(LOG, ID))
        assert value is not None
        mirror = Mirror(ID, TOPIC, epoch=former.stored.version, holder="former")
        with pytest.raises(ServiceNotReadyError):
            await writing_to(store).take(mirror, value, former)
        assert len(former.fenced) == 2, "else a topic without producers would stay as it is"
        await store.close()

    asyncio.run(story())


def test_an_owner_that_changes_its_list_meanwhile_claims_the_part() -> None:
    """A new ledger was begun: the version that it read first is not the present one."""

    async def story() -> None:
        class Slow(MemoryMetadataStore):
            async def put(self, path: str, data: bytes, **more: Any) -> Stat:
                stat = await super().put(path, data, **more)
                await asyncio.sleep(0)  # it took effect, and its writer does not know it yet
                return stat

        store = Slow(ManualClock())
        log = await opened(store)
        mirror = await new_part(store, log, "owner")
        change = asyncio.create_task(log.stored.update(lambda metadata: metadata))
        while True:
            value = await store.get(log_path(LOG))
            assert value is not None
            if value.stat.version != log.stored.version:
                break
            await asyncio.sleep(0)
        await writing_to(store).claim(mirror, log)
        await change
        assert mirror.epoch == log.stored.version == value.stat.version
        assert log.fenced == []
        await store.close()

    asyncio.run(story())


def test_a_part_that_is_written_while_it_is_looked_at_is_not_deleted() -> None:
    """The next owner claims it after the former one has read it: what was decided is not durable there."""

    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        path = part_path(LOG, ID)
        await store.put(path, b"{}", expected_version=MUST_NOT_EXIST)
        mirror = Mirror(ID, TOPIC, epoch=4, holder="former")
        get = store.get

        async def get_and_claim(asked: str) -> Value | None:
            value = await get(asked)
            store.get = get  # type: ignore[method-assign]
            await store.put(path, OF_THE_NEXT)
            return value

        store.get = get_and_claim  # type: ignore[method-assign]
        with pytest.raises(ServiceNotReadyError):
            await writing_to(store).delete(mirror)
        left = await store.get(path)
        assert left is not None
        assert left.data == OF_THE_NEXT
        await store.close()

    asyncio.run(story())


def test_an_owner_that_changes_its_list_meanwhile_drops_a_part_of_an_earlier_topic() -> None:
    """The version in the store is its own, and it does not know it yet: it is not overtaken."""

    async def story() -> None:
        class Slow(MemoryMetadataStore):
            async def put(self, path: str, data: bytes, **more: Any) -> Stat:
                stat = await super().put(path, data, **more)
                await asyncio.sleep(0)
                return stat

        store = Slow(ManualClock())
        log = await opened(store)
        mirror = await new_part(store, log, "owner")
        await store.put(part_path(LOG, ID), b'{"e":1000,"o":"of an earlier topic"}')
        value = await store.get(part_path(LOG, ID))
        assert value is not None
        change = asyncio.create_task(log.stored.update(lambda metadata: metadata))
        while True:
            found = await store.get(log_path(LOG))
            assert found is not None
            if found.stat.version != log.stored.version:
                break
            await asyncio.sleep(0)
        assert not await writing_to(store).take(mirror, value, log)
        await change
        assert log.fenced == []
        assert await store.get(part_path(LOG, ID)) is None
        await store.close()

    asyncio.run(story())


def header_of(state: TxnState, *, closing: bool = False) -> bytes:
    header = Transaction(ID, owner="", ttl_ms=1_000, started_ms=1, deadline_ms=0)
    header.partitions, header.closing = {TOPIC: None}, closing
    header.verdict = None if state is TxnState.OPEN else state
    return header.header(parts=True)


@pytest.mark.parametrize(("state", "closing"), [(TxnState.OPEN, True), (TxnState.ABORTED, False)])
def test_an_acknowledgement_is_stored_while_its_transaction_is_open(
    state: TxnState, *, closing: bool
) -> None:
    """Its header was written since the topic read it, and the note of that comes later."""

    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        log = await opened(store)
        await store.put(header_path(ID), header_of(TxnState.OPEN))
        mirror, writing = await new_part(store, log, "owner"), writing_to(store)
        await writing.claim(mirror, log)
        assert await writing.read_header(mirror)
        await store.put(header_path(ID), header_of(state, closing=closing))
        mirror.changed()
        if state is TxnState.OPEN:
            await writing.save(mirror)
            assert mirror.closing, "what the header says is known now"
        else:
            with pytest.raises(TransactionStateError):
                await writing.save(mirror)
        await store.delete(header_path(ID))
        mirror.changed()
        with pytest.raises(TransactionStateError):
            await writing.save(mirror)
        # What closes it is written all the same.
        mirror.durable = True
        mirror.changed()
        await writing.save(mirror)
        await store.close()

    asyncio.run(story())


def test_of_two_reads_of_a_header_the_newer_one_counts() -> None:
    """The answer to the first one comes last: a topic that has done what was decided would take more."""

    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        log = await opened(store)
        await store.put(header_path(ID), header_of(TxnState.OPEN))
        mirror, kept = await new_part(store, log, "owner"), KeptParts(store)
        writing = PartWriting(kept, ManualClock(), lambda mirror: None)
        await writing.claim(mirror, log)
        early = await kept.header(ID)
        await store.put(header_path(ID), header_of(TxnState.ABORTED))
        assert await writing.read_header(mirror)

        async def late(id_: TxnId) -> tuple[bytes, int] | None:
            return early

        kept.header = late  # type: ignore[method-assign]  # of this one object
        assert await writing.read_header(mirror)
        assert mirror.state is TxnState.ABORTED
        await store.close()

    asyncio.run(story())


def test_an_acknowledgement_is_refused_where_its_header_is_older_than_it_was() -> None:
    """The store was restored from a backup under the broker. To write again on what is read would not end."""

    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        log = await opened(store)
        for _ in range(3):
            await store.put(header_path(ID), header_of(TxnState.OPEN))
        mirror, writing = await new_part(store, log, "owner"), writing_to(store)
        await writing.claim(mirror, log)
        assert await writing.read_header(mirror)
        await store.delete(header_path(ID))
        await store.put(header_path(ID), header_of(TxnState.OPEN))
        mirror.changed()
        with pytest.raises(BadVersionError):
            await asyncio.wait_for(writing.save(mirror), 10)
        await store.close()

    asyncio.run(story())

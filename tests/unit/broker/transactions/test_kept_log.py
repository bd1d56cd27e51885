"""Headers in a log over a store that fails, forgets to answer, is damaged, or has another writer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import MetadataError
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.header_log import GIVEN_UP, SPARE_BYTES
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.kept import KeptTransactions, header_path
from magnetar.broker.transactions.kept_log import LoggedTransactions, any_left
from magnetar.broker.transactions.transaction import Transaction
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import BadVersionError, Delete, Operation, OutcomeUnknownError, Stat
from magnetar.runtime.tasks import TaskGroup
from support.transactions import headers_in


class Store(MemoryMetadataStore):
    """Transactions of it can be lost before or after they take effect."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.lost_before = self.lost_after = self.transactions = 0

    async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
        if self.lost_before:
            self.lost_before -= 1
            raise OutcomeUnknownError("the connection was lost")
        stats = await super().transact(operations)
        self.transactions += 1
        if self.lost_after:
            self.lost_after -= 1
            raise OutcomeUnknownError("the connection was lost")
        return stats


class Process:
    """One that keeps transactions."""

    def __init__(self, store: MemoryMetadataStore) -> None:
        self.tasks = TaskGroup("test")
        self.kept = LoggedTransactions(store, self.tasks.spawn)

    async def recovered(self) -> dict[int, bytes]:
        return {sequence: value.data async for sequence, value in self.kept.headers(0)}

    async def save(self, txn: Transaction) -> None:
        revision = txn.revision
        txn.version = await self.kept.save(txn)
        txn.saved = revision

    async def began(self, sequence: int, *, owner: str = "") -> Transaction:
        txn = Transaction(TxnId(0, sequence), owner=owner, ttl_ms=1, started_ms=2, deadline_ms=0)
        await self.save(txn)
        return txn

    async def commit(self, txn: Transaction) -> None:
        txn.ending = TxnState.COMMITTED
        Coordinator.decide(txn)
        await self.save(txn)
        txn.state, txn.ending, txn.verdict = TxnState.COMMITTED, None, None

    async def end(self, *txns: Transaction) -> None:
        coordinator = Coordinator(0, open_max=1)
        for txn in txns:
            txn.state = TxnState.COMMITTED
        await self.kept.end(coordinator, txns, coordinator.ended(txns), again=False)


def story(act: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(act(Store()))


def test_headers_of_one_turn_share_a_record() -> None:
    async def act(store: Store) -> None:
        process = Process(store)
        txns = await asyncio.gather(*(process.began(number) for number in range(50)))
        assert store.transactions == 1
        await asyncio.gather(*(process.commit(txn) for txn in txns))
        assert store.transactions == 2
        again = await Process(store).recovered()
        assert again == {txn.id.sequence: txn.header() for txn in txns}
        process.kept.check()

    story(act)


def test_a_header_of_many_acknowledgements_has_a_record_of_its_own() -> None:
    async def act(store: Store) -> None:
        process = Process(store)
        await asyncio.gather(*(process.began(number, owner="o" * 200_000) for number in range(3)))
        assert store.transactions == 3
        assert len(await Process(store).recovered()) == 3

    story(act)


def test_what_is_over_goes() -> None:
    async def act(store: Store) -> None:
        process = Process(store)
        first = await process.began(0)
        for number in range(1, 60):
            txn = await process.began(number)
            await process.commit(txn)
            await process.end(txn)
        assert len(await store.children(keys.TRANSACTION_LOG)) == 2 * (1 + 3 * 59), "the first one is open"
        await process.commit(first)
        await process.end(first)
        assert len(await store.children(keys.TRANSACTION_LOG)) == 2, "the last record keeps its number"
        assert not await any_left(store)
        assert await Process(store).recovered() == {}
        later = Process(store)
        assert await later.recovered() == {}
        await later.began(70)
        assert len(await store.children(keys.TRANSACTION_LOG)) == 4

    story(act)


def test_one_that_stays_open_does_not_keep_the_log() -> None:
    async def act(store: Store) -> None:
        process = Process(store)
        first = await process.began(0)
        for number in range(1, 40):
            txn = await process.began(number, owner="o" * (SPARE_BYTES // 10))
            await process.end(txn)
        assert len(await store.children(keys.TRANSACTION_LOG)) < 100
        assert (await headers_in(store)).keys() == {first.id}
        await process.commit(first)
        assert await Process(store).recovered() == {0: first.header()}

    story(act)


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_write_without_an_answer_is_asked_for(took_effect: bool) -> None:
    async def act(store: Store) -> None:
        process = Process(store)
        txn = await process.began(0)
        store.lost_after, store.lost_before = int(took_effect), int(not took_effect)
        with pytest.raises(OutcomeUnknownError):
            await process.commit(txn)
        found = await process.kept.header(txn.id)
        assert found is not None
        assert (b"COMMITTED" in found[0]) is took_effect
        assert txn.version is not None
        assert (found[1] > txn.version) is took_effect
        other = await process.began(1)
        assert (await headers_in(store)).keys() == {txn.id, other.id}
        process.kept.check()

    story(act)


def test_a_header_without_an_answer_is_not_written_over() -> None:
    async def act(store: Store) -> None:
        process = Process(store)
        txn = await process.began(0)
        store.lost_after = 1
        with pytest.raises(OutcomeUnknownError):
            await process.commit(txn)
        with pytest.raises(BadVersionError):
            await process.kept.write(txn, b"{}")

    story(act)


def test_a_process_that_was_replaced_writes_nothing() -> None:
    async def act(store: Store) -> None:
        old = Process(store)
        txn = await old.began(0)
        new = Process(store)
        assert await new.recovered() == {0: txn.header()}
        other = await new.began(1)
        with pytest.raises(BadVersionError):
            await old.commit(txn)
        assert await old.kept.header(other.id) == await new.kept.header(other.id)
        assert b"OPEN" in (await headers_in(store))[txn.id]

    story(act)


def test_nor_where_all_was_over_meanwhile() -> None:
    async def act(store: Store) -> None:
        old = Process(store)
        txn = await old.began(0)
        new = Process(store)
        await new.recovered()
        copy = Transaction(txn.id, owner="", ttl_ms=1, started_ms=2, deadline_ms=0)
        copy.version = txn.version
        for _ in range(20):
            await new.save(copy)
        await new.end(copy)
        with pytest.raises(BadVersionError):
            await old.commit(txn)
        assert await old.kept.header(txn.id) is None
        with pytest.raises(BadVersionError):
            await old.commit(txn)

    story(act)


def test_a_process_that_has_written_nothing_yet_looks_first() -> None:
    async def act(store: Store) -> None:
        first = await Process(store).began(0)
        behind, new, gone = Process(store), Process(store), Process(store)
        for process in (behind, new, gone):
            await process.recovered()
        other = await new.began(1)
        third = await behind.began(2)
        assert {txn_id.sequence for txn_id in await headers_in(store)} == {0, 1, 2}
        behind.kept.check()
        new = Process(store)
        await new.recovered()
        for number in range(3, 25):
            await new.end(first, other, third, await new.began(number))
        with pytest.raises(BadVersionError):
            await gone.began(90)

    story(act)


def test_records_whose_deletion_got_no_answer_go_later() -> None:
    async def act(store: Store) -> None:
        process = Process(store)
        txns = [await process.began(number) for number in range(40)]
        deletes = store.transact

        async def lost(operations: Sequence[Operation]) -> list[Stat | None]:
            stats = await deletes(operations)
            if isinstance(operations[0], Delete):
                store.transact = deletes  # type: ignore[method-assign]
                raise OutcomeUnknownError("the connection was lost")
            return stats

        store.transact = lost  # type: ignore[method-assign]
        await process.end(*txns)
        await process.began(41)
        await process.tasks.drain(1)
        assert len(await store.children(keys.TRANSACTION_LOG)) <= 4
        process.kept.check()

    story(act)


def test_headers_of_an_earlier_release_are_taken_over() -> None:
    async def act(store: Store) -> None:
        earlier = KeptTransactions(store)
        for number in range(130):
            txn = Transaction(TxnId(0, number), owner="", ttl_ms=1, started_ms=2, deadline_ms=0)
            await earlier.write(txn, txn.header())
        assert len(await Process(store).recovered()) == 130
        assert await store.children(keys.transaction_headers(0)) == []
        assert len(await Process(store).recovered()) == 130

    story(act)


def test_a_restored_header_replaces_the_one_in_the_log() -> None:
    async def act(store: Store) -> None:
        txn = await Process(store).began(0)
        await store.put(header_path(txn.id), b"restored")
        assert await Process(store).recovered() == {0: b"restored"}
        assert await headers_in(store) == {txn.id: b"restored"}

    story(act)


@pytest.mark.parametrize("damage", [b"", b"x" * 40, None])
def test_a_damaged_record_has_a_copy(damage: bytes | None) -> None:
    async def act(store: Store) -> None:
        txn = await Process(store).began(0)
        for name in ("0", "0-copy"):
            path = f"{keys.TRANSACTION_LOG}/{name}"
            good = await store.get(path)
            assert good is not None
            await spoil(store, path, damage)
            assert await Process(store).recovered() == {0: txn.header()}
            await store.put(path, good.data)

    async def spoil(store: Store, path: str, damage: bytes | None) -> None:
        await (store.delete(path) if damage is None else store.put(path, damage))

    story(act)


def test_a_record_that_is_damaged_twice_is_told() -> None:
    async def act(store: Store) -> None:
        await Process(store).began(0)
        for name in ("0", "0-copy"):
            await store.put(f"{keys.TRANSACTION_LOG}/{name}", b"damaged")
        with pytest.raises(DamagedDocumentError, match=r"/transactions/log/0 .*given up"):
            await Process(store).recovered()
        await store.put(f"{keys.TRANSACTION_LOG}/0", GIVEN_UP)
        assert await Process(store).recovered() == {}

    story(act)


def test_a_record_that_is_lost_is_told() -> None:
    async def act(store: Store) -> None:
        process = Process(store)
        for number in range(3):
            await process.began(number)
        for name in ("1", "1-copy"):
            await store.delete(f"{keys.TRANSACTION_LOG}/{name}")
        with pytest.raises(DamagedDocumentError, match=r"/transactions/log/1 .*not there"):
            await Process(store).recovered()

    story(act)


def test_a_cancelled_writer_hinders_no_other() -> None:
    async def act(store: Store) -> None:
        process = Process(store)
        one, other = (asyncio.ensure_future(process.began(number)) for number in range(2))
        await asyncio.sleep(0)
        one.cancel()
        assert (await other).id.sequence == 1
        assert await process.kept.header(TxnId(0, 0)) is not None, "it may take effect"

    story(act)


def test_a_store_that_is_away_is_told_to_all_and_tried_again() -> None:
    async def act(store: Store) -> None:
        process = Process(store)
        store.lost_before = 1
        writes: list[Awaitable[Transaction]] = [process.began(number) for number in range(3)]
        found = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(each, MetadataError) for each in found)
        await process.began(4)
        assert [txn_id.sequence for txn_id in await headers_in(store)] == [4]

    story(act)

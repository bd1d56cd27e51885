"""Marks, locks, switches and votes of auto-recovery."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import MetadataError
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.election import AuditorElection
from magnetar.metadata.bookkeeper.underreplicated_ledgers import UnderreplicatedLedgers
from magnetar.metadata.bookkeeper.underreplication import (
    AuditCheck,
    UnderreplicatedLedger,
    UnderreplicationPaths,
    check_layout,
    decode_check_time,
    decode_mark,
    encode_check_time,
    encode_layout,
    encode_lock,
    encode_mark,
    encode_vote,
    vote_order,
)
from magnetar.metadata.memory import MemoryMetadataStore


def test_paths_and_values_are_apaches() -> None:
    paths = UnderreplicationPaths(BookKeeperTree())
    assert paths.ledger(0x1234_5678_9ABC) == (
        "/ledgers/underreplication/ledgers/0000/1234/5678/9abc/urL20015998343868"
    )
    assert paths.lock(7) == "/ledgers/underreplication/locks/urL0000000007"
    assert paths.ledger_id_of("urL0000000007") == 7
    assert paths.ledger_id_of("L7") is None
    assert encode_layout() == b'type: "BASIC"\nversion: 1\n'
    check_layout(encode_layout())
    with pytest.raises(MetadataError):
        check_layout(b'type: "OTHER"\nversion: 1\n')
    mark = UnderreplicatedLedger(7, ("b1:3181", "b2:3181"), 1_700_000_000_000)
    assert encode_mark(mark) == b'replica: "b1:3181"\nreplica: "b2:3181"\nctime: 1700000000000\n'
    assert decode_mark(7, encode_mark(mark)) == mark
    assert decode_mark(7, b"") == UnderreplicatedLedger(7, (), None)
    with pytest.raises(MetadataError):
        decode_mark(7, b"\xff")
    assert encode_lock("b1:3181") == b'bookieId: "b1:3181"\n'
    assert encode_check_time(300) == b"\x08\xac\x02"
    assert min(["V_0000000010", "V_0000000009", "other"], key=vote_order) == "V_0000000009"


def test_a_mark_goes_only_if_nobody_marked_it_again() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock(5))
        marks = UnderreplicatedLedgers(store, BookKeeperTree(), ManualClock(5))
        await marks.prepare()
        await marks.prepare()
        assert await marks.get(7) is None
        await marks.mark(7, frozenset({"b1"}))
        await marks.mark(1 << 40, frozenset({"b1"}))
        assert sorted([ledger_id async for ledger_id in marks.marked()]) == [7, 1 << 40]
        found = await marks.get(7)
        assert found is not None
        _, version = found
        await marks.mark(7, frozenset({"b2", "b1"}))
        assert not await marks.replicated(7, version)
        found = await marks.get(7)
        assert found is not None
        assert found[0] == UnderreplicatedLedger(7, ("b1", "b2"), 5)
        await marks.mark(7, frozenset({"b1"}))
        assert not await marks.replicated(7, found[1])
        assert await marks.replicated(7, found[1] + 1)
        assert await marks.replicated(7, 0)
        assert [ledger_id async for ledger_id in marks.marked()] == [1 << 40]
        await store.close()

    asyncio.run(story())


def test_locks_and_switches() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        marks = UnderreplicatedLedgers(store, BookKeeperTree(), ManualClock())
        assert await marks.lock(7, "w1")
        assert not await marks.lock(7, "w2")
        # The answer to the first attempt may have been lost.
        assert await marks.lock(7, "w1")
        assert await marks.locked() == {7}
        await marks.unlock(7)
        await marks.unlock(7)
        assert await marks.lock(7, "w2")
        assert await marks.enabled()
        await store.put(marks.paths.disable, b"")
        assert not await marks.enabled()
        assert await marks.lost_bookie_delay_s() is None
        await marks.propose_lost_bookie_delay(60)
        await marks.propose_lost_bookie_delay(90)
        assert await marks.lost_bookie_delay_s() == 60
        await store.put(marks.paths.lost_bookie_delay, b"soon")
        with pytest.raises(MetadataError):
            await marks.lost_bookie_delay_s()
        await store.close()

    asyncio.run(story())


def test_times_of_checks_outlive_who_made_them() -> None:
    async def story() -> None:
        clock = ManualClock()
        store = MemoryMetadataStore(clock)
        marks = UnderreplicatedLedgers(store, BookKeeperTree(), clock)
        assert await marks.since_checked_s(AuditCheck.REPLICAS) is None
        await marks.note_checked(AuditCheck.REPLICAS)
        clock.advance(90_000)
        assert await marks.since_checked_s(AuditCheck.REPLICAS) == 90
        assert await marks.since_checked_s(AuditCheck.PLACEMENT) is None
        found = await store.get("/ledgers/underreplication/replicascheckctime")
        assert found is not None
        assert decode_check_time(found.data) == clock.now_ms() - 90_000
        assert decode_check_time(b"") == -1
        with pytest.raises(MetadataError):
            decode_check_time(b"\xff")
        # The clock of another process was ahead.
        later = encode_check_time(clock.now_ms() + 5_000)
        await store.put("/ledgers/underreplication/placementpolicycheckctime", later)
        assert await marks.since_checked_s(AuditCheck.PLACEMENT) == 0
        # And another one's for a year: the check is not put off until then.
        clock.step(-365 * 86_400_000)
        assert await marks.since_checked_s(AuditCheck.REPLICAS) is None
        clock.step(365 * 86_400_000)
        await marks.enable(enabled=False)
        assert not await marks.enabled()
        await marks.enable(enabled=True)
        await marks.enable(enabled=True)
        assert await marks.enabled()
        await marks.set_lost_bookie_delay(9)
        assert await marks.lost_bookie_delay_s() == 9
        await store.close()

    asyncio.run(story())


def test_the_oldest_vote_wins() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        paths = UnderreplicationPaths(BookKeeperTree())
        first, second = (AuditorElection(store, paths, name) for name in ("n1", "n2"))
        assert await first.auditor() is None
        assert await first.wins()
        assert not await second.wins()
        assert await second.auditor() == "n1"
        value = await store.get(paths.election)
        assert value is not None
        assert value.data == b'bookieId: "n1"\n'
        await first.withdraw()
        await first.withdraw()
        assert await second.wins()
        assert not await first.wins()
        assert await first.auditor() == "n2"
        await store.close()

    asyncio.run(story())


def test_a_vote_whose_answer_was_lost_is_the_candidates_own() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        paths = UnderreplicationPaths(BookKeeperTree())
        election, other = (AuditorElection(store, paths, name) for name in ("n1", "n2"))
        # It was stored, and the connection was lost before the answer: the candidate votes once more.
        await store.put(paths.vote_prefix, encode_vote("n1"), ephemeral=True, sequential=True)
        assert await election.wins()
        assert not await other.wins()
        assert len(await store.children(paths.election)) == 2
        await election.withdraw()
        assert await other.wins()
        await store.close()

    asyncio.run(story())

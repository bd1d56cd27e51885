"""Entries of ledgers that are rarely written wait for each other; others do not wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

from magnetar.bookie.pacing import WINDOW_S, Rarity
from magnetar.bookie.store_options import Durability
from magnetar.runtime.syncer import InlineSyncer
from support.storage import Sink, run, store_in

HOUR_MS = 3_600_000
NO_MARK = {"idle_mark_ms": HOUR_MS}
"""An idle store marks its end, with a sync that is not one of these tests."""


def test_rare_entries_wait_while_there_are_many() -> None:
    rarity = Rarity(1_000)
    for step in range(1, 401):
        rarity.committed(1 if step < 200 else 0, step * 0.0005)
        if step in (100, 150):
            assert not rarity.waits, "the first window is not over"
        if 210 < step < 400:
            assert rarity.waits, "two of them in a millisecond"
    rarity.committed(0, 0.2 + 2 * WINDOW_S)
    assert not rarity.waits


def test_few_rare_entries_do_not_wait() -> None:
    rarity = Rarity(1_000)
    for step in range(1_000):
        rarity.committed(1, step * 0.002)
        assert not rarity.waits


class CountingSyncer(InlineSyncer):
    count = 0

    def _sync_file(self, fd: int) -> None:
        self.count += 1


def test_rare_entries_of_several_ticks_share_a_commit(tmp_path: Path) -> None:
    async def story() -> None:
        syncer = CountingSyncer()
        options = {"rare_per_s": 0, "rare_wait_ms": 50, "rare_after_ms": 0, **NO_MARK}
        async with store_in(tmp_path, durability=Durability.FSYNC, syncer=syncer, **options) as store:
            sinks = [Sink() for _ in range(4)]
            appenders = [store.appender(ledger_id, sink) for ledger_id, sink in enumerate(sinks)]
            appenders[0].append([b"first"], None, 0, 1)
            await sinks[0].reached(0)
            for appender in appenders[1:]:
                appender.append([b"x"], None, 0, 1)
                for _ in range(5):
                    await asyncio.sleep(0)
            assert syncer.count == 1
            for sink in sinks:
                await sink.reached(0)
            assert syncer.count == 2

    run(story())


def test_who_was_just_answered_does_not_wait_and_takes_the_others_along(tmp_path: Path) -> None:
    async def story() -> None:
        syncer = CountingSyncer()
        options = {"rare_per_s": 0, "rare_wait_ms": HOUR_MS, "rare_after_ms": HOUR_MS, **NO_MARK}
        async with store_in(tmp_path, durability=Durability.FSYNC, syncer=syncer, **options) as store:
            steady, rare = Sink(), Sink()
            steady_appender, rare_appender = store.appender(1, steady), store.appender(2, rare)
            steady_appender.append([b"first"], None, 0, 1)
            await steady.reached(0)
            rare_appender.append([b"x"], None, 0, 1)
            await asyncio.sleep(0)
            steady_appender.append([b"second"], None, 1, 1)
            await steady.reached(1)
            await rare.reached(0)
            assert syncer.count == 2

    run(story())


def test_what_is_behind_a_full_group_does_not_wait(tmp_path: Path) -> None:
    async def story() -> None:
        syncer = CountingSyncer()
        options = {"rare_per_s": 0, "rare_wait_ms": HOUR_MS, "rare_after_ms": HOUR_MS, **NO_MARK}
        async with store_in(tmp_path, durability=Durability.FSYNC, syncer=syncer, **options) as store:
            sink = Sink()
            appender = store.appender(1, sink)
            for entry in range(2_000):
                appender.append([b"x"], None, entry, entry)
            await sink.reached(1_999)
            assert syncer.count == 2

    run(story())


def test_a_deletion_waits_for_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        syncer = CountingSyncer()
        options = {"rare_per_s": 0, "rare_wait_ms": HOUR_MS, "rare_after_ms": HOUR_MS, **NO_MARK}
        async with store_in(tmp_path, durability=Durability.FSYNC, syncer=syncer, **options) as store:
            sink, rare = Sink(), Sink()
            appender = store.appender(1, sink)
            appender.append([b"x"], None, 0, 1)
            await sink.reached(0)
            store.appender(2, rare).append([b"x"], None, 0, 1)
            await asyncio.sleep(0)
            await store.delete(1)
            await rare.reached(0)

    run(story())

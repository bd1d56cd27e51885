"""Seeks by time into offloaded history, with the real worker: ranged reads are counted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from fakes.managed_logs import read_all, until
from fakes.tiered import TieredProcess, rows_of
from magnetar.managedlog.config import Retention
from magnetar.managedlog.log import ManagedLog
from magnetar.tiered.parquet.offload_worker import OffloadWorker
from magnetar.tiered.policy import OffloadPolicy
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]

LEDGERS, ENTRIES = 3, 6_000
READS_MAX = 6
"""The reads of one look-up in a file that was not opened yet: its end, its footer, and what tells row groups
and rows apart. 6,000 entries searched one by one would be 13."""


async def history(process: TieredProcess) -> ManagedLog:
    """A log whose history lies in the store alone."""
    log, _ = await process.open()
    log.retention = Retention(ms=-1, size_bytes=-1)
    process.offloading.apply(log.offloading, {}, {})
    for ledger in range(LEDGERS):
        for first in range(0, ENTRIES, 100):
            process.clock.advance(1000)
            entries = [
                build_entry(
                    pb.MessageMetadata(
                        producer_name="p", sequence_id=number, publish_time=process.clock.now_ms()
                    ),
                    b"%d of %d " % (number, ledger) * 20,
                )
                for number in range(first, first + 100)
            ]
            log.append(entries, None)
        await until(process, lambda ledger=ledger: len(log.info().ledgers) > ledger + 1)  # type: ignore[misc]
    await process.settle()
    return log


def test_a_seek_by_time_costs_a_few_reads(tmp_path: Path) -> None:
    async def story() -> None:
        process = TieredProcess(
            tmp_path,
            policy=OffloadPolicy(threshold_bytes=0, deletion_lag_ms=0),
            segment_bytes=1 << 20,
            entries_max_per_ledger=ENTRIES,
            cache_bytes=0,
        )
        workers: list[OffloadWorker] = []

        def new_worker(waited_for: bool) -> OffloadWorker:
            workers.append(OffloadWorker(niceness=0))
            return workers[-1]

        process.tiering.new_worker = new_worker
        try:
            log = await history(process)
            before = rows_of(await read_all(log, bytes_max=8 << 20, entries_max=100_000))
            times = sorted({row[4] for row in before})
            wanted = {time_ms: await log.position_of_time(time_ms) for time_ms in times[::40]}
            await process.offloading.round()
            await process.offloading.round()
            assert process.storage.figures.local_deleted == LEDGERS
            gets = process.objects.store.gets
            for time_ms, position in wanted.items():
                gets.clear()
                assert await log.position_of_time(time_ms) == position
                assert len(gets) <= READS_MAX
            gets.clear()
            assert rows_of(await read_all(log, bytes_max=8 << 20, entries_max=100_000)) == before
            size = sum(map(len, process.objects.store.objects.values()))
            assert sum(length for _, _, length in gets) <= 1.3 * size, (
                "what is read on is read once; the rest are footers"
            )
        finally:
            for worker in workers:
                await worker.close()

    asyncio.run(story())

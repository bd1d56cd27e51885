"""Look-ups by key in a history of many files, with the real worker: ranged reads are counted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from fakes.managed_logs import until
from fakes.tiered import TieredProcess
from magnetar.managedlog.config import Retention
from magnetar.managedlog.log import ManagedLog
from magnetar.tiered import key_lookup
from magnetar.tiered.key_lookup import KeyAnswer, LoggedLedger
from magnetar.tiered.parquet.offload_worker import OffloadWorker
from magnetar.tiered.parquet.parquet_history import MessagePlace
from magnetar.tiered.policy import OffloadPolicy
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]

FILES = 207
"""Not a power of four: 3 × 64 + 3 × 4 ledgers have directories, 3 have none."""
READS_MAX = 3 * 5 + 3 + 6
"""Three directories of each size at most, ledgers without one, and what the file takes that has the key.
Without directories it would be two for each file, 400 and more."""


def key_of(number: int) -> str:
    return f"key {number}"


async def history(process: TieredProcess) -> ManagedLog:
    """Each ledger has a key of its own, and the key `often`."""
    log, _ = await process.open()
    log.retention = Retention(ms=-1, size_bytes=-1)
    process.offloading.apply(log.offloading, {}, {})
    for ledger in range(FILES):
        process.clock.advance(1000)
        for key in (key_of(ledger), "often"):
            metadata = pb.MessageMetadata(
                producer_name="p", sequence_id=ledger, publish_time=process.clock.now_ms(), partition_key=key
            )
            log.append([build_entry(metadata, b"%d" % ledger)], None)
        await until(process, lambda ledger=ledger: len(log.info().ledgers) > ledger + 1)  # type: ignore[misc]
    await process.settle()
    return log


def test_a_key_in_many_files_costs_a_few_reads(tmp_path: Path) -> None:
    async def story() -> None:
        process = TieredProcess(
            tmp_path, policy=OffloadPolicy(threshold_bytes=0, deletion_lag_ms=0), entries_max_per_ledger=2
        )
        workers: list[OffloadWorker] = []

        def new_worker(waited_for: bool) -> OffloadWorker:
            workers.append(OffloadWorker(niceness=0))
            return workers[-1]

        process.tiering.new_worker = new_worker
        try:
            log = await history(process)
            await process.offloading.round()
            await process.offloading.round()
            assert process.storage.figures.local_deleted == FILES
            gets = process.objects.store.gets

            async def forget() -> None:
                """As a process that has just begun, with nothing opened."""
                for worker in workers:
                    await worker.close()
                process.storage._readers.clear()
                gets.clear()

            async def asked(key: str, count: int = 1, before: MessagePlace | None = None) -> KeyAnswer:
                info = log.info()
                ledgers = [LoggedLedger(each.ledger_id, each.entries, each.offload) for each in info.ledgers]
                return await key_lookup.find(
                    process.storage, info.name, ledgers, key.encode(), count_max=count, before=before
                )

            for number in (0, 130, FILES - 1):
                await forget()
                answer = await asked(key_of(number))
                assert [message.payload for message in answer.messages] == [b"%d" % number]
                assert len(gets) <= READS_MAX
            await forget()
            assert (await asked("nowhere")).messages == []
            assert len(gets) <= READS_MAX, "nor does it cost more to know that there is none"

            newest = await asked("often")
            assert (newest.messages[0].payload, newest.segments, newest.more) == (
                b"%d" % (FILES - 1),
                1,
                True,
            )
            all_of_them = await asked("often", FILES + 1)
            assert [message.payload for message in all_of_them.messages] == [
                b"%d" % number for number in reversed(range(FILES))
            ]
            older = await asked("often", 2, before=all_of_them.messages[10].place)
            assert older.messages == all_of_them.messages[11:13]

            # What has no copy is named; an old ledger that goes takes nothing else with it.
            log.append(
                [
                    build_entry(
                        pb.MessageMetadata(
                            producer_name="p", sequence_id=1, publish_time=1, partition_key="often"
                        ),
                        b"new",
                    )
                ],
                None,
            )
            await process.settle()
            (unread,) = (await asked("often")).unread
            assert (unread.ledger_id, unread.first_entry, unread.last_entry) == (
                log.info().ledgers[-1].ledger_id,
                0,
                0,
            )
            objects = process.objects.store.objects
            assert sum(name.endswith("-keys") for name in objects) == FILES // 4
            for name in [name for name in objects if name.endswith("-keys")]:
                await process.objects.delete(name)
            await forget()
            found = await asked(key_of(0))
            assert [message.payload for message in found.messages] == [b"0"], "they only spare reads"
            await process.logs.delete(log.name)
            await process.settle()
            assert not objects
        finally:
            for worker in workers:
                await worker.close()

    asyncio.run(story())

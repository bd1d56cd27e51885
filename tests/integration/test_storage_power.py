"""Power cuts and full disks on a real ext4 file system."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from magnetar.base.errors import DiskFullError
from magnetar.bookie.store_options import Durability
from magnetar.runtime.syncer import HelperSyncer
from support.loop_images import copy_image, make_image, mounted, why_impossible
from support.storage import Sink, entries_of, segments, store_in, until
from support.storage_processes import Acknowledged, lost_entries, write_and_kill

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]

ROUNDS = 6


@pytest.fixture(autouse=True)
def _loop_devices(tmp_path: Path) -> None:
    reason = why_impossible(tmp_path)
    if reason is not None:
        pytest.skip(reason)


def cut_power(
    tmp_path: Path, *, seed: int, bytes_of_acks: int, sync: bool, recycled: list[int] | None = None
) -> list[str]:
    """Writes, cuts, and returns what was lost; adds to `recycled` how many segments had a life before."""
    image, copy = tmp_path / "disk.img", tmp_path / "copy.img"
    acknowledged = Acknowledged()
    make_image(image, 128 << 20)
    with mounted(image, tmp_path / "disk") as disk:
        write_and_kill(
            disk / "store",
            acknowledged,
            seed=seed,
            bytes_of_acks=bytes_of_acks,
            segment_bytes=1 << 20,
            sync=sync,
        )
        copy_image(image, copy)
    if recycled is not None:
        recycled.append(acknowledged.recycled)
    with mounted(copy, tmp_path / "disk") as disk:
        return asyncio.run(lost_entries(disk / "store", acknowledged))


def test_acknowledged_entries_survive_power_cuts(tmp_path: Path) -> None:
    chance = random.Random(7)
    recycled: list[int] = []
    for number in range(ROUNDS):
        size = chance.randrange(1, 6000)
        lost = cut_power(tmp_path, seed=number, bytes_of_acks=size, sync=True, recycled=recycled)
        assert lost == [], number
    assert sum(recycled) > ROUNDS


def test_without_syncs_the_same_cut_loses_entries(tmp_path: Path) -> None:
    """That the cut does drop what is not synced, or the test above would prove nothing."""
    # The system may have written everything by itself meanwhile, on a slow machine.
    assert any(cut_power(tmp_path, seed=seed, bytes_of_acks=3000, sync=False) for seed in range(1, 6))


def test_a_disk_that_fills_up_loses_nothing_and_recovers(tmp_path: Path) -> None:
    async def story(folder: Path) -> None:
        async with store_in(
            folder, durability=Durability.FSYNC, syncer=HelperSyncer(), segment_bytes=4 << 20
        ) as store:
            acknowledged = {}
            for ledger_id in range(1000):
                sink = Sink()
                appender = store.appender(ledger_id, sink)
                for i in range(4):
                    appender.append([bytes([ledger_id % 256]) * 250_000], None, i, 1)
                await appender.settle()
                await asyncio.sleep(0)
                acknowledged[ledger_id] = sink.last
                if sink.error is not None:
                    break
                store.release(appender)
            assert isinstance(sink.error, DiskFullError)
            assert str(folder) in str(sink.error)
            for ledger_id, last in acknowledged.items():
                assert len(await entries_of(store, ledger_id)) == last + 1
            # Deleting works on the full disk, and makes room without a restart.
            before = len(segments(folder))
            for ledger_id in range(8):
                await store.delete(ledger_id)
            await until(lambda: len(segments(folder)) < before)
            sink = Sink()
            store.appender(5000, sink).append([b"after"], None, 0, 1)
            await sink.reached(0)
        async with store_in(folder) as store:
            assert await entries_of(store, 5000) == [b"after"]
            assert store.ledger_ids() >= {k for k, last in acknowledged.items() if k >= 8 and last >= 0}

    image = tmp_path / "disk.img"
    make_image(image, 48 << 20)
    with mounted(image, tmp_path / "disk") as disk:
        asyncio.run(story(disk / "store"))

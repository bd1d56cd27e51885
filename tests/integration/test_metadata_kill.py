"""A metadata store whose process is killed keeps every write that returned."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.metadata.embedded import EmbeddedMetadataStore

pytestmark = pytest.mark.one_process("own")

ROUNDS = 12

WRITER = """
import asyncio, os, sys
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.base.clock import ManualClock

async def main():
    store = EmbeddedMetadataStore.open(sys.argv[1], clock=ManualClock())

    async def put(lane, number):
        stat = await store.put(f"/lanes/{lane}", b"%d" % number)
        await store.put("/log/n-", b"%d" % number, sequential=True)
        await store.put(f"/live/{lane}", b"", ephemeral=True)
        os.write(1, b"%d %d\\n" % (lane, number))

    async def lane(lane, first):
        number = first
        while True:
            await put(lane, number)
            number += 1

    await asyncio.gather(*(lane(i, int(sys.argv[2])) for i in range(8)))

asyncio.run(main())
"""


@pytest.mark.process
def test_every_write_that_returned_survives_kill_9(tmp_path: Path) -> None:
    file = tmp_path / "metadata.db"
    chance = random.Random(20260101)
    acknowledged: dict[int, int] = {}
    for number in range(ROUNDS):
        first = number * 1_000_000
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(file), str(first)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        # Not a time but a number of acknowledged writes: slow machines are killed as deep in the work.
        for _ in range(chance.randint(1, 400)):
            lane, value = map(int, process.stdout.readline().split())
            acknowledged[lane] = value
        process.kill()
        for line in process.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                lane, value = map(int, line.split())
                acknowledged[lane] = value
        process.stdout.close()
        process.wait()
        asyncio.run(check(file, acknowledged, first))


async def check(file: Path, acknowledged: dict[int, int], first: int) -> None:
    store = EmbeddedMetadataStore.open(file, clock=ManualClock())
    try:
        assert await store.children("/live") == []
        for lane, value in acknowledged.items():
            stored = await store.get(f"/lanes/{lane}")
            assert stored is not None
            # The write after the last reported one may have become durable too.
            assert int(stored.data) in (value, value + 1, first)
            assert int(stored.data) >= value
        names = await store.children("/log")
        assert names == sorted(set(names))
    finally:
        await store.close()

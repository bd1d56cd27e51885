"""A process that writes metadata until it is killed and reports what returned, and the check of what it left.

    python metadata_writer.py FILE FIRST_NUMBER fsync|normal

Each line on stdout is `lane number`: the value of the lane is at least that number from now on.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from magnetar.base.clock import ManualClock
from magnetar.metadata.embedded import EmbeddedMetadataStore

LANES = 8


async def write_for_ever(file: Path, first: int, mode: str) -> None:
    store = EmbeddedMetadataStore.open(file, clock=ManualClock(), reserve_bytes=1 << 20)
    if mode == "normal":
        store._writer.execute("PRAGMA synchronous = NORMAL")

    async def write(lane: int, number: int) -> None:
        await store.put(f"/lanes/{lane}", b"%d" % number)
        await store.put("/log/n-", b"%d" % number, sequential=True)
        await store.put(f"/live/{lane}", b"", ephemeral=True)
        os.write(1, b"%d %d\n" % (lane, number))

    async def go_on(lane: int) -> None:
        number = first
        while True:
            await write(lane, number)
            number += 1

    await asyncio.gather(*(go_on(lane) for lane in range(LANES)))


def said_values(said: bytes) -> dict[int, int]:
    """The last number that was told for each lane; the last line may be cut."""
    found: dict[int, int] = {}
    for line in said.split(b"\n")[:-1]:
        lane, number = map(int, line.split())
        found[lane] = number
    return found


def lost_writes(file: Path, said: bytes) -> list[str]:
    """Opens what the writer left; every write that returned and is not there."""
    return asyncio.run(_lost_writes(file, said_values(said)))


async def _lost_writes(file: Path, said: dict[int, int]) -> list[str]:
    lost = []
    store = EmbeddedMetadataStore.open(file, clock=ManualClock(), durable=False)
    try:
        if await store.children("/live"):
            lost.append("ephemeral values of a session that ended are there")
        for lane, number in said.items():
            stored = await store.get(f"/lanes/{lane}")
            found = -1 if stored is None else int(stored.data)
            # The write after the last one that was told may be there too.
            if found not in (number, number + 1):
                lost.append(f"lane {lane}: {found} instead of {number}")
        names = await store.children("/log")
        if len(names) < sum(number + 1 for number in said.values()):
            lost.append(f"{len(names)} numbered values are too few")
    finally:
        await store.close()
    return lost


if __name__ == "__main__":
    where, start, how = sys.argv[1:]
    asyncio.run(write_for_ever(Path(where), int(start), how))

"""A metadata file with one flipped bit: refused, or the same to every reader."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from magnetar.base.clock import ManualClock
from magnetar.base.errors import CorruptDataError, StartupError, StorageFailedError
from magnetar.metadata.embedded import EmbeddedMetadataStore


def file_in(folder: Path) -> Path:
    return folder / "metadata.db"


def session(folder: Path, script: Callable[[EmbeddedMetadataStore], Awaitable[None]]) -> None:
    async def body() -> None:
        store = EmbeddedMetadataStore.open(file_in(folder), clock=ManualClock(1), durable=False)
        try:
            await script(store)
        finally:
            await store.close()

    asyncio.run(body())


async def fill(store: EmbeddedMetadataStore) -> None:
    """All kinds of rows, over several pages of nodes."""
    for number in range(60):
        await store.put(f"/ledgers/00/0000/L{number:04d}", b"value of %d " % number * 6)
    await store.put("/ids/n", b"", sequential=True)
    await store.delete("/ledgers/00/0000/L0007")


async def dump(store: EmbeddedMetadataStore) -> list[tuple[str, bytes, int]]:
    """Everything that a reader sees."""
    found, paths = [], ["/"]
    while paths:
        path = paths.pop()
        for child in await store.children(path):
            below = f"{path.rstrip('/')}/{child}"
            paths.append(below)
            if (value := await store.get(below)) is not None:
                found.append((below, value.data, value.stat.version))
    return sorted(found)


def test_one_flipped_bit_anywhere_is_refused_or_does_no_harm(tmp_path: Path) -> None:
    """In a key it would make a value vanish, and with it what nobody else names."""
    seen: list[list[tuple[str, bytes, int]]] = []

    async def look(store: EmbeddedMetadataStore) -> None:
        seen.append(await dump(store))
        assert (await store.put("/ids/n", b"", sequential=True)).path == "/ids/n0000000001"

    session(tmp_path, fill)
    whole = file_in(tmp_path).read_bytes()
    session(tmp_path, look)
    chance = random.Random(7)
    used = [place for place in range(len(whole)) if whole[place]]
    refused = 0
    for place in (*range(16, 100, 2), *chance.sample(used, 200), *chance.sample(range(len(whole)), 50)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        file_in(tmp_path).write_bytes(damaged)
        try:
            session(tmp_path, look)
        except (CorruptDataError, StartupError, StorageFailedError):
            refused += 1
            continue
        assert seen.pop() == seen[0], f"byte {place} of the file"
    assert refused > 120

"""An embedded metadata store of one folder: what it is filled with, and what a reader sees of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from magnetar.base.clock import ManualClock
from magnetar.metadata.embedded import EmbeddedMetadataStore

Row = tuple[str, bytes, int]
"""Path, value and version."""


def file_in(folder: Path) -> Path:
    return folder / "metadata" / "metadata.db"


def session(
    folder: Path, script: Callable[[EmbeddedMetadataStore], Awaitable[None]], *, durable: bool = False
) -> None:
    """Runs a script on the folder's store, which is made where there is none, and closes it."""

    async def body() -> None:
        store = EmbeddedMetadataStore.open(file_in(folder), clock=ManualClock(1), durable=durable)
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


async def dump(store: EmbeddedMetadataStore) -> list[Row]:
    """Everything that a reader sees."""
    found: list[Row] = []
    paths = ["/"]
    while paths:
        path = paths.pop()
        for child in await store.children(path):
            below = f"{path.rstrip('/')}/{child}"
            paths.append(below)
            if (value := await store.get(below)) is not None:
                found.append((below, value.data, value.stat.version))
    return sorted(found)

"""A process that appends to a segment store until it is killed, and prints what was acknowledged.

    python storage_writer.py FOLDER SEED FIRST_LEDGER SEGMENT_BYTES fsync|no-sync

Segments of which half is dead are rewritten all the time, and files are filled with zeros for the next
segments, both without a bound on the rate.

Each line on stdout is `ledger last_entry`, written when the ledger is durable up
to there, or `deleting ledger` and `deleted ledger` around a deletion, or `recycled segment` when the log
continues in a file that was written before. The content of an entry follows from its place, so a later reader
of the store can check it.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from magnetar.bookie.appender import LedgerAppender
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability, StoreOptions
from magnetar.runtime.syncer import NoSyncer

LEDGERS = 5
PENDING_BYTES_MAX = 4 << 20


def content(ledger_id: int, entry_id: int) -> bytes:
    """The bytes of an entry: mostly small, some of 100 KiB."""
    chance = random.Random(ledger_id * 1_000_003 + entry_id)
    size = 100_000 if chance.random() < 0.02 else chance.randrange(300)
    return b"%d:%d:" % (ledger_id, entry_id) + chance.randbytes(size)


class Reporter:
    """Says what became durable."""

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id

    def durable(self, last_entry: int) -> None:
        os.write(1, b"%d %d\n" % (self.ledger_id, last_entry))

    def failed(self, error: Exception) -> None:
        print(error, file=sys.stderr)
        os._exit(3)


def append_some(appender: LedgerAppender, chance: random.Random) -> None:
    first = appender.last_pushed + 1
    count = chance.randrange(1, 20)
    appender.append([content(appender.ledger_id, first + i) for i in range(count)], None, first, 1)


async def write_for_ever(
    folder: Path, seed: int, first_ledger: int, segment_bytes: int, *, sync: bool
) -> None:
    chance = random.Random(seed)
    store = await SegmentStore.open(
        folder,
        options=StoreOptions(
            segment_bytes=segment_bytes,
            idle_mark_ms=5,
            rewrite_interval_s=0.001,
            rewrite_bytes_per_s=1 << 40,
            rewrite_below=0.9,
            rewrite_bytes_below=0.95,
            prewrite_bytes_min=64 << 10,
            prewrite_bytes_per_s=1 << 40,
        ),
        durability=Durability.FSYNC,
        syncer=None if sync else NoSyncer(),
    )
    following = first_ledger
    appenders: list[LedgerAppender] = []
    recycled = 0
    while True:
        while len(appenders) < LEDGERS:
            appenders.append(store.appender(following, Reporter(following)))
            following += 1
        for appender in chance.sample(appenders, chance.randrange(1, LEDGERS + 1)):
            append_some(appender, chance)
        if chance.random() < 0.05:
            gone = appenders.pop(0)
            await gone.settle()
            store.release(gone)
            if chance.random() < 0.5:
                os.write(1, b"deleting %d\n" % gone.ledger_id)
                await store.delete(gone.ledger_id)
                os.write(1, b"deleted %d\n" % gone.ledger_id)
        if store.supply.recycled > recycled:
            recycled += 1
            os.write(1, b"recycled %d\n" % recycled)
        await asyncio.sleep(0.01 if chance.random() < 0.02 else 0)
        while store.pending_bytes > PENDING_BYTES_MAX:  # noqa: ASYNC110 - a load, not a product
            await asyncio.sleep(0)


if __name__ == "__main__":
    where, number, first, size, mode = sys.argv[1:]
    asyncio.run(write_for_ever(Path(where), int(number), int(first), int(size), sync=mode == "fsync"))

"""What does the segment store cost, and how long does it take?

    python -m bench.storage_probe [--folder DIR] [--json PATH]

- CPU microseconds per entry of 100 B, appended in vectors of 1,500 and one by one, synced by the helper
  process (processor time of this process, so a busy machine disturbs little), and the helper's share;
- megabytes per second and CPU for entries of 100 KiB, and for reading them back from the page cache;
- latency from append to the durable mark, one entry of 1 or 64 KiB at a time, under uvloop: in files that
  are only set aside, with zeros written ahead, and in files that were written before;
- how long it takes to open the store again with 100,000 ledgers of one entry: from footers, and after a
  crash from the blocks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import tempfile
import time
from pathlib import Path

import uvloop

from magnetar.base.ids import LedgerId
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import StoreOptions

SMALL = b"x" * 100
VECTOR = 1500
SMALL_ROUNDS = 400
SINGLE_ROUNDS = 20_000
LARGE_BYTES = 100 << 10
LARGE_TOTAL_BYTES = 1 << 30
PENDING_BYTES_MAX = 32 << 20
LATENCY_WARM_UP = 10
BURST = 100
SPARE_BYTES = 256 << 20
LEDGERS = 100_000


class Mark:
    """Wakes the coroutine that waits for the durable mark."""

    def __init__(self) -> None:
        self._waiting: asyncio.Future[None] | None = None
        self._wanted = 0
        self.last = -1

    def durable(self, last_entry: int) -> None:
        self.last = last_entry
        if self._waiting is not None and last_entry >= self._wanted and not self._waiting.done():
            self._waiting.set_result(None)

    def failed(self, error: Exception) -> None:
        raise error

    async def reached(self, entry: int) -> None:
        """Returns when `entry` is durable."""
        if self.last < entry:
            self._wanted = entry
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting


async def small_entries(folder: Path) -> dict[str, float]:
    """CPU of vectors of small entries, and of small entries one by one."""
    store = await SegmentStore.open(folder)
    mark = Mark()
    appender = store.appender(LedgerId(1), mark)
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(SMALL_ROUNDS):
        appender.append([SMALL] * VECTOR, None, 0, 1)
        while store.pending_bytes > PENDING_BYTES_MAX:
            await mark.reached(mark.last + 1)
        await asyncio.sleep(0)
    await mark.reached(appender.last_pushed)
    entries = SMALL_ROUNDS * VECTOR
    vector_cpu, vector_s = time.process_time() - cpu, time.perf_counter() - start
    cpu = time.process_time()
    for number in range(SINGLE_ROUNDS):
        appender.append([SMALL], None, 0, 1)
        if number % 100 == 99:
            await asyncio.sleep(0)
    await mark.reached(appender.last_pushed)
    single_cpu = time.process_time() - cpu
    await store.close()
    return {
        "vector_cpu_us_per_entry": vector_cpu / entries * 1e6,
        "vector_entries_per_s": entries / vector_s,
        "single_cpu_us_per_entry": single_cpu / SINGLE_ROUNDS * 1e6,
    }


async def large_entries(folder: Path) -> dict[str, float]:
    """Throughput of large entries, written and read."""
    store = await SegmentStore.open(folder)
    mark = Mark()
    appender = store.appender(LedgerId(1), mark)
    entry = os.urandom(LARGE_BYTES)
    count = LARGE_TOTAL_BYTES // LARGE_BYTES
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(0, count, 2):
        appender.append([entry, entry], None, 0, 1)
        while store.pending_bytes > PENDING_BYTES_MAX:
            await mark.reached(mark.last + 1)
        await asyncio.sleep(0)
    await mark.reached(appender.last_pushed)
    wall, used = time.perf_counter() - start, time.process_time() - cpu
    total = (appender.last_pushed + 1) * LARGE_BYTES
    start = time.perf_counter()
    at = 0
    while at <= appender.last_pushed:
        for run in await store.reader.read(appender.index, at, appender.last_pushed, 4 << 20):
            at = run.last_entry + 1
    read_s = time.perf_counter() - start
    await store.close()
    return {
        "large_write_mb_per_s": total / wall / 1e6,
        "large_write_cpu_s_per_gb": used / total * 1e9,
        "large_read_mb_per_s": total / read_s / 1e6,
    }


def written_spare(folder: Path) -> None:
    """A file that was written before, for the store's first segment."""
    segments = folder / "segments"
    segments.mkdir(parents=True)
    with (segments / f"{0:016x}.spare").open("wb") as file:
        for _ in range(SPARE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())


async def latency(folder: Path) -> dict[str, float]:
    """From append to the durable mark: in files only set aside, with zeros ahead, in files written before.

    The three take turns in short bursts, so that what else the machine does meets all of them. Of p50 and p99
    the median over the bursts is told, so that a disturbed one does not count.
    """
    written_spare(folder / "recycled")
    stores = {
        case: await SegmentStore.open(folder / case, options=options)
        for case, options in (
            ("set_aside", StoreOptions(spare_segments=0)),
            ("zeros_ahead", StoreOptions()),
            ("recycled", StoreOptions()),
        )
    }
    results: dict[str, float] = {}
    for size, bursts, pause_s in ((1 << 10, 24, 0.0005), (64 << 10, 8, 0.002)):
        marks = {case: Mark() for case in stores}
        appenders = {case: store.appender(LedgerId(size), marks[case]) for case, store in stores.items()}
        figures: dict[str, list[list[float]]] = {case: [] for case in stores}
        for number in range(LATENCY_WARM_UP + bursts):
            for case, appender in appenders.items():
                latencies = []
                for _ in range(BURST):
                    start = time.perf_counter()
                    appender.append([b"y" * size], None, 0, 1)
                    await marks[case].reached(appender.last_pushed)
                    latencies.append(time.perf_counter() - start)
                    await asyncio.sleep(pause_s)
                if number >= LATENCY_WARM_UP:
                    figures[case].append(sorted(latencies))
        for case, found in figures.items():
            key = f"{case}_{size >> 10}k"
            for name, place in (("p50", BURST // 2), ("p99", BURST * 99 // 100)):
                at_place = sorted(burst[place] for burst in found)
                results[f"{key}_{name}_ms"] = at_place[len(at_place) // 2] * 1e3
                results[f"{key}_{name}_best_ms"] = at_place[0] * 1e3
    for store in stores.values():
        await store.close()
    return results


async def reopening(folder: Path) -> dict[str, float]:
    """Opening with many small ledgers: after a clean end, and after a crash."""
    options = StoreOptions(segment_blocks_max=LEDGERS + 1000)
    store = await SegmentStore.open(folder, options=options)
    mark = Mark()
    for ledger_id in map(LedgerId, range(LEDGERS)):
        appender = store.appender(ledger_id, mark)
        appender.append([SMALL], None, 0, 1)
        if ledger_id % 1000 == 999:
            await appender.settle()
    await appender.settle()
    crashed = folder.with_name("crashed")
    shutil.copytree(folder, crashed)
    await store.close()
    start = time.perf_counter()
    store = await SegmentStore.open(folder)
    clean_s = time.perf_counter() - start
    await store.close()
    start = time.perf_counter()
    store = await SegmentStore.open(crashed)
    crashed_s = time.perf_counter() - start
    assert len(store.ledger_ids()) == LEDGERS
    await store.close()
    return {"reopen_clean_ms": clean_s * 1e3, "reopen_after_crash_ms": crashed_s * 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("."), help="on the device to measure")
    parser.add_argument("--json", type=Path)
    scenarios = {work.__name__: work for work in (small_entries, large_entries, latency, reopening)}
    parser.add_argument("--only", choices=scenarios, help="this part alone")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}")
    results: dict[str, float] = {}
    for name, scenario in scenarios.items():
        if arguments.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            figures = uvloop.run(scenario(Path(folder) / "store"))
        for key, value in figures.items():
            print(f"{key:<28} {value:>12.3f}", flush=True)
        results.update(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

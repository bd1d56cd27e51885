"""How should the end of an fdatasync reach a busy event loop?

    python -m bench.commit_probe [--folder DIR] [--seconds S] [--json PATH]

Under uvloop, 16 KiB are appended to a preallocated file and synced, one after the other, in four ways:
in a thread of its own (`call_soon_threadsafe`), in the default thread pool, in the helper process of
the product, and on the loop itself. Meanwhile the loop also runs pieces of Python work of 200 us: none,
for half of the time, or back to back. The latency is from handing the sync over to the callback on the
loop. `work` is the share of the time the loop spent with its pieces of work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import queue
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvloop

from magnetar.runtime.syncer import Done, HelperSyncer, InlineSyncer, Syncer

APPEND_BYTES = 16 << 10
FILE_BYTES = 256 << 20
PIECE_S = 200e-6
HALF_PIECES = 25
"""Pieces between two rests of the same length: the loop's timers have a resolution of a millisecond."""
PAUSE_S = 0.001
LOADS = ("idle", "half", "saturated")
LATENCY_S_MAX = 20.0


class ThreadSyncer:
    """One thread that takes requests from a queue."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = -1
        self._requests: queue.SimpleQueue[Done | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def attach(self, fd: int) -> int:
        self._fd = fd
        return 0

    def detach(self, slot: int) -> None:
        pass

    def sync(self, slot: int, done: Done) -> None:
        self._requests.put(done)

    def _serve(self) -> None:
        while (done := self._requests.get()) is not None:
            os.fdatasync(self._fd)
            self._loop.call_soon_threadsafe(done, None)

    def watch(self, broken: Callable[[OSError], None]) -> None:
        pass

    async def close(self) -> None:
        self._requests.put(None)


class PoolSyncer:
    """The event loop's default thread pool."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = -1

    def attach(self, fd: int) -> int:
        self._fd = fd
        return 0

    def detach(self, slot: int) -> None:
        pass

    def sync(self, slot: int, done: Done) -> None:
        future = self._loop.run_in_executor(None, os.fdatasync, self._fd)
        future.add_done_callback(lambda _: done(None))

    def watch(self, broken: Callable[[OSError], None]) -> None:
        pass

    async def close(self) -> None:
        pass


WAYS: dict[str, Callable[[], Syncer]] = {
    "thread": ThreadSyncer,
    "thread pool": PoolSyncer,
    "helper process": HelperSyncer,
    "inline": InlineSyncer,
}


class Load:
    """Pieces of pure Python work on the loop, as a busy broker would have."""

    def __init__(self, kind: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._kind = kind
        self._stopped = kind == "idle"
        self._pieces = 0
        self.busy_s = 0.0
        if not self._stopped:
            self._loop.call_soon(self._piece)

    def _piece(self) -> None:
        if self._stopped:
            return
        start = time.perf_counter()
        number = 0
        while time.perf_counter() - start < PIECE_S:
            number += 1
        self.busy_s += time.perf_counter() - start
        self._pieces += 1
        if self._kind == "half" and self._pieces % HALF_PIECES == 0:
            self._loop.call_later(HALF_PIECES * PIECE_S, self._piece)
        else:
            self._loop.call_soon(self._piece)

    def stop(self) -> None:
        self._stopped = True


async def measure(way: str, load_kind: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Latencies of one way under one load."""
    loop = asyncio.get_running_loop()
    data = os.urandom(APPEND_BYTES)
    path = folder / "probe"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.posix_fallocate(fd, 0, FILE_BYTES)
    os.fsync(fd)
    syncer = WAYS[way]()
    slot = syncer.attach(fd)
    latencies: list[float] = []
    load = Load(load_kind)
    begin = time.perf_counter()
    offset = 0
    while time.perf_counter() - begin < seconds:
        ended: asyncio.Future[float] = loop.create_future()
        os.pwrite(fd, data, offset)
        offset = (offset + APPEND_BYTES) % (FILE_BYTES - APPEND_BYTES)
        start = time.perf_counter()

        def done(error: OSError | None, ended: asyncio.Future[float] = ended) -> None:
            assert error is None
            if not ended.done():
                ended.set_result(time.perf_counter())

        syncer.sync(slot, done)
        try:
            latencies.append(await asyncio.wait_for(ended, LATENCY_S_MAX) - start)
        except TimeoutError:
            latencies.append(LATENCY_S_MAX)
        await asyncio.sleep(PAUSE_S)
    elapsed = time.perf_counter() - begin
    load.stop()
    await syncer.close()
    os.close(fd)
    path.unlink()
    latencies.sort()

    def at(share: float) -> float:
        return latencies[min(int(len(latencies) * share), len(latencies) - 1)] * 1000

    return {
        "way": way,
        "load": load_kind,
        "syncs": len(latencies),
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
        "p999_ms": at(0.999),
        "max_ms": latencies[-1] * 1000,
        "work_share": load.busy_s / elapsed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("."), help="on the device to measure")
    parser.add_argument("--seconds", type=float, default=5.0, help="per way and load")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"
    print(f"{machine}, CPython {platform.python_version()}, uvloop {version('uvloop')}")
    print("way             load        syncs   p50 ms    p99 ms  p99.9 ms    max ms   work")
    results = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for load in LOADS:
            for way in WAYS:
                result = uvloop.run(measure(way, load, Path(folder), arguments.seconds))
                results.append(result)
                print(
                    f"{way:<15} {load:<10} {result['syncs']:>6} {result['p50_ms']:>8.2f}"
                    f" {result['p99_ms']:>9.2f} {result['p999_ms']:>9.2f} {result['max_ms']:>9.2f}"
                    f" {result['work_share']:>6.0%}",
                    flush=True,
                )
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "results": results}, indent=1))


if __name__ == "__main__":
    main()

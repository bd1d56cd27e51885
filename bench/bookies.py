"""What do bookies cost, and how fast are they, with our ledger client?

    python -m bench bookies [--folder DIR] [--seconds S] [--stored-gb N] [--json PATH]

One client process, bookies as processes of their own on this machine, everything synced:

- the device's own rate of appending and syncing, 1 MiB at a time, in the same run;
- one bookie, entries of 64 KiB and of 100 B (in vectors, as a broker's batches arrive): rate, share of the
  device's rate, CPU of client and bookie, bytes that the bookie wrote (files written ahead with zeros
  included) for each byte of payload (/proc/PID/io);
- three bookies, E=3 Qw=3 Qa=2: the same, and the rate of one bookie that it comes to for each byte written;
- how long a bookie with so many gigabytes takes from exec until it serves.

Figures depend on what else the machine does; the client and all bookies share its cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import device
from bench.proc import usage
from magnetar.base.clock import ManualClock
from magnetar.base.errors import LedgerError
from magnetar.bookie.network.server import BookieServer
from magnetar.bookie.store import SegmentStore
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledgers import LedgerClient, LedgerOptions
from magnetar.ledger.client.options import ClientOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.registry import BookieInfo, LiveBookies
from magnetar.metadata.bookkeeper.tree import BookKeeperTree
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.runtime import loop as event_loop

PENDING_BYTES_MAX = 16 << 20
CASES = ((64 << 10, 16), (100, 1_000))
"""Bytes of an entry, entries of a vector."""


class Marks:
    """Wakes the writer when something was confirmed."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.error: LedgerError | None = None

    def durable(self, last_entry: int) -> None:
        self.changed.set()

    def failed(self, error: LedgerError) -> None:
        self.error = error
        self.changed.set()


class Bookies:
    """Bookies at ports that are known."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._live = LiveBookies(frozenset(f"127.0.0.1:{port}" for port in ports), frozenset())

    async def bookies(self) -> LiveBookies:
        return self._live

    async def info(self, bookie_id: str) -> BookieInfo | None:
        return BookieInfo(bookie_id)


async def serve(folder: Path) -> None:
    """A bookie without a cluster: says its port, runs until its input ends."""
    server = await BookieServer.open(await SegmentStore.open(folder))
    sys.stdout.write(f"{await server.listen('127.0.0.1', 0)}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await server.close()


@contextmanager
def bookie(folder: Path) -> Iterator[tuple[int, int]]:
    """Pid and port of a bookie."""
    command = [sys.executable, "-m", "bench.bookies", "--serve", str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
    finally:
        process.communicate(timeout=60)


def written_bytes(pid: int) -> int:
    """Bytes that a process caused to be written to the device."""
    lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    counts = {name: int(count) for name, count in (line.split(": ") for line in lines)}
    return counts["write_bytes"] - counts["cancelled_write_bytes"]


async def load(
    ports: Sequence[int], layout: QuorumLayout, size: int, vector: int, seconds: float, *, number: int = 0
) -> int:
    """Writes for so long and waits for the end; how many entries were confirmed. `number`: of the ledger."""
    store = MemoryMetadataStore(ManualClock())
    ledgers = TreeLedgerRegistry(store, BookKeeperTree())
    client = LedgerClient(Cluster(ledgers, Bookies(ports), ClientOptions()))
    marks = Marks()
    for _ in range(number):
        await client.create(LedgerOptions(layout=layout), marks)
    writer = await client.create(LedgerOptions(layout=layout), marks)
    payload = bytes(size)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        if marks.error is not None:
            raise marks.error
        if writer.pending_bytes < min(PENDING_BYTES_MAX, 32 * vector * size):
            writer.append([payload] * vector)
            await asyncio.sleep(0)
        else:
            marks.changed.clear()
            await marks.changed.wait()
    closed = await writer.close()
    await client.close()
    return closed.last_entry + 1


def measure(folder: Path, count: int, size: int, vector: int, seconds: float) -> dict[str, float]:
    """One case: `count` bookies, entries of `size` bytes."""
    layout = QuorumLayout(count, count, count - 1) if count > 1 else QuorumLayout(1, 1, 1)
    with tempfile.TemporaryDirectory(dir=folder, prefix="bench-bookies-") as scratch:
        return _measure(Path(scratch), layout, size, vector, seconds)


def _measure(scratch: Path, layout: QuorumLayout, size: int, vector: int, seconds: float) -> dict[str, float]:
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(bookie(scratch / str(number))) for number in range(layout.ensemble_size)
        ]
        before_bytes = sum(written_bytes(pid) for pid, _ in running)
        before_s = sum(usage(pid).cpu_s for pid, _ in running)
        own_s, begin = time.process_time(), time.perf_counter()
        entries = event_loop.run(load([port for _, port in running], layout, size, vector, seconds))
        elapsed_s = time.perf_counter() - begin
        own_s = time.process_time() - own_s
        bookies_s = sum(usage(pid).cpu_s for pid, _ in running) - before_s
        wrote = sum(written_bytes(pid) for pid, _ in running) - before_bytes
    payload_bytes = entries * size
    return {
        "bookies": layout.ensemble_size,
        "entry_bytes": size,
        "entries_per_s": entries / elapsed_s,
        "mb_per_s": payload_bytes / elapsed_s / 1e6,
        "stored_mb_per_s": payload_bytes * layout.write_quorum / elapsed_s / 1e6,
        "client_us_per_entry": own_s / entries * 1e6,
        "bookie_us_per_entry": bookies_s / entries / layout.write_quorum * 1e6,
        "written_per_byte": wrote / payload_bytes / layout.write_quorum,
    }


def restart(folder: Path, gigabytes: float) -> dict[str, float]:
    """How long a bookie with so much stored takes from exec until it serves."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="bench-bookies-") as scratch:
        stored = 0
        with bookie(Path(scratch)) as (_, port):
            for number in itertools.count():
                if stored >= gigabytes * 1e9:
                    break
                running = load([port], QuorumLayout(1, 1, 1), 64 << 10, 16, 5.0, number=number)
                stored += event_loop.run(running) * (64 << 10)
        begin = time.perf_counter()
        with bookie(Path(scratch)):
            return {"stored_gb": stored / 1e9, "restart_s": time.perf_counter() - begin}


def main(words: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench bookies", description="Measures bookies.")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the data goes"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="measured time of a case (10)")
    parser.add_argument("--stored-gb", type=float, default=2.0, help="stored before the restart (2)")
    parser.add_argument("--json", type=Path, help="write everything measured there")
    chosen = parser.parse_args(words)
    if chosen.serve is not None:
        event_loop.run(serve(chosen.serve))
        return 0
    found = device.sync_histogram(chosen.folder, 1 << 20, 3.0)
    device_mb_per_s = found["megabytes_per_s"]
    print(f"device, 1 MiB and a sync       {device_mb_per_s:8.0f} MB/s")
    rows = []
    for count in (1, 3):
        for size, vector in CASES:
            row = measure(chosen.folder, count, size, vector, chosen.seconds)
            row["share_of_device"] = row["stored_mb_per_s"] / device_mb_per_s
            rows.append(row)
            print(
                f"{count} bookies, entries of {size:6} B   {row['entries_per_s']:8.0f} entries/s  "
                f"{row['mb_per_s']:6.1f} MB/s  {row['share_of_device']:5.0%} of the device stored  "
                f"client {row['client_us_per_entry']:6.1f} us, bookie {row['bookie_us_per_entry']:6.1f} us  "
                f"{row['written_per_byte']:.3f} B written/B"
            )
    again = restart(chosen.folder, chosen.stored_gb)
    print(f"restart with {again['stored_gb']:.1f} GB             {again['restart_s']:8.2f} s")
    if chosen.json is not None:
        told = {"device_mb_per_s": device_mb_per_s, "cases": rows, "restart": again}
        chosen.json.write_text(json.dumps(told, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

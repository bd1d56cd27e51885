"""What do bookies cost, and how fast are they, with our ledger client?

    python -m bench bookies [--folder DIR] [--seconds S] [--apache] [--free-memory] [--json PATH]
    python -m bench bookies --stored-gb 10 [--folder DIR]

One client process, bookies as processes of their own on this machine, everything synced:

- the device's own rate of appending and syncing, 1 MiB at a time, in the same run;
- one bookie, entries of 64 KiB and of 100 B (in vectors, as a broker's batches arrive): rate, share of the
  device's rate, CPU of client and bookie, bytes that the bookie wrote for each byte of payload
  (/proc/PID/io), and how many of them were zeros written ahead of need: a bookie whose first ledgers were
  deleted writes none;
- three bookies, E=3 Qw=3 Qa=2: the same, and the rate of one bookie that it comes to for each byte stored;
- `--apache`: the same client and load on a bookie of Apache's, with its ZooKeeper in one process, its
  bytes counted after it has flushed (needs Java and Maven);
- `--stored-gb`: only how long a bookie with so many gigabytes takes after kill -9 from exec until it serves,
  and how much it reads for that.

An entry is 36 B longer than its payload: the protocol's head and digest. Figures depend on what else the
machine does; the client and all bookies share its cores. The page cache is filled first (memory.py).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import device, machine
from bench.apache_bookie import FLUSHED_S, apache_bookie
from bench.bookie_processes import Bookie, Marks, bookie, client
from bench.memory import PageCache
from bench.proc import usage
from magnetar.ledger.client.ledger_client import LedgerOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.runtime import loop as event_loop

PENDING_BYTES_MAX: Final = 16 << 20
CASES: Final = ((64 << 10, 16), (100, 1_000))
"""Bytes of an entry, entries of a vector."""
ONE: Final = QuorumLayout(1, 1, 1)
THREE: Final = QuorumLayout(3, 3, 2)
WARM_UP_S: Final = 1.0
JAVA_WARM_UP_S: Final = 8.0


def io_counts(pid: int) -> dict[str, int]:
    """What /proc says of a process's reading and writing."""
    lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    return {name: int(count) for name, count in (line.split(": ") for line in lines)}


def written_bytes(pid: int) -> int:
    """Bytes that a process caused to be written to the device."""
    counts = io_counts(pid)
    return counts["write_bytes"] - counts["cancelled_write_bytes"]


async def load(
    ports: Sequence[int], layout: QuorumLayout, size: int, vector: int, seconds: float, *, number: int = 0
) -> int:
    """Writes for so long and waits for the end; how many entries were confirmed. `number`: of the ledger."""
    ledgers = client(ports)
    marks = Marks()
    for _ in range(number):
        await ledgers.create(LedgerOptions(layout=layout), marks)
    writer = await ledgers.create(LedgerOptions(layout=layout), marks)
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
    await ledgers.close()
    return closed.last_entry + 1


def measure(
    ports: Sequence[int],
    pids: Sequence[int],
    layout: QuorumLayout,
    case: tuple[int, int],
    seconds: float,
    *,
    warm_up_s: float = WARM_UP_S,
    settle_s: float = 0.0,
) -> dict[str, float]:
    """One case: entries of so many bytes, in vectors of so many.

    Rate and CPU are those after `warm_up_s`; written bytes those of both, `settle_s` after the end.
    """
    size, vector = case

    def cpu_s() -> float:
        return sum(usage(pid).cpu_s for pid in pids)

    before_bytes = sum(map(written_bytes, pids))
    warm = event_loop.run(load(ports, layout, size, vector, warm_up_s))
    before_s, own_s, begin = cpu_s(), time.process_time(), time.perf_counter()
    entries = event_loop.run(load(ports, layout, size, vector, seconds, number=1))
    elapsed_s = time.perf_counter() - begin
    own_s, bookies_s = time.process_time() - own_s, cpu_s() - before_s
    # Apache's bookies write to the entry log behind the journal; that counts as written, too.
    time.sleep(settle_s)
    stored_bytes = (warm + entries) * size * layout.write_quorum
    return {
        "bookies": layout.ensemble_size,
        "entry_bytes": size,
        "entries_per_s": entries / elapsed_s,
        "mb_per_s": entries * size / elapsed_s / 1e6,
        "stored_mb_per_s": entries * size * layout.write_quorum / elapsed_s / 1e6,
        "client_us_per_entry": own_s / entries * 1e6,
        "bookie_us_per_entry": bookies_s / entries / layout.write_quorum * 1e6,
        "stored_bytes": stored_bytes,
        "written_per_byte": (sum(map(written_bytes, pids)) - before_bytes) / stored_bytes,
    }


def ours(folder: Path, layout: QuorumLayout, case: tuple[int, int], seconds: float) -> dict[str, float]:
    """A case on bookies of ours, each with a new folder."""
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix="bench-bookies-") as scratch,
        contextlib.ExitStack() as stack,
    ):
        running = [
            stack.enter_context(bookie(Path(scratch) / str(number))) for number in range(layout.ensemble_size)
        ]
        row = measure([one.port for one in running], [one.pid for one in running], layout, case, seconds)
        row["zeros_per_byte"] = sum(one.zeros() for one in running) / row["stored_bytes"]
        return row


def apaches(folder: Path, case: tuple[int, int], seconds: float) -> dict[str, float]:
    """A case on a bookie of Apache's, with a new folder."""
    with apache_bookie(folder) as (pid, port):
        return measure([port], [pid], ONE, case, seconds, warm_up_s=JAVA_WARM_UP_S, settle_s=FLUSHED_S)


def restart(folder: Path, gigabytes: float) -> dict[str, float]:
    """How long a bookie with so much stored takes from exec until it serves, when it was killed."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="bench-bookies-") as scratch:
        begun = Bookie(Path(scratch))
        stored = number = 0
        while stored < gigabytes * 1e9:
            running = load([begun.port], ONE, 64 << 10, 16, 2.0, number=number)
            stored += event_loop.run(running) * (64 << 10)
            number += 1
        begun.kill()
        begin = time.perf_counter()
        with bookie(Path(scratch)) as again:
            serves_s = time.perf_counter() - begin
            read, cpu_s = io_counts(again.pid)["rchar"], usage(again.pid).cpu_s
        return {"stored_gb": stored / 1e9, "restart_s": serves_s, "cpu_s": cpu_s, "read_mb": read / 1e6}


def told(who: str, row: dict[str, float]) -> str:
    """A line for people."""
    zeros = f" ({row['zeros_per_byte']:.2f} of it zeros)" if row.get("zeros_per_byte") else ""
    return (
        f"{who:10} {row['bookies']:1.0f} x {row['entry_bytes']:5.0f} B  "
        f"{row['entries_per_s']:8.0f} entries/s  {row['mb_per_s']:6.1f} MB/s  "
        f"{row['share_of_device']:5.0%} of the device stored  client {row['client_us_per_entry']:5.1f} us, "
        f"bookie {row['bookie_us_per_entry']:6.1f} us  {row['written_per_byte']:.3f} B written/B{zeros}"
    )


def compared(rows: Sequence[dict[str, float]]) -> list[str]:
    """Three bookies against one: what is written to the disk each second, for the same entries."""
    lines = []
    for size, _ in CASES:
        one, three = (
            next(
                row["stored_mb_per_s"] * (row["written_per_byte"] - row["zeros_per_byte"])
                for row in rows
                if row["bookies"] == count and row["entry_bytes"] == size and "zeros_per_byte" in row
            )
            for count in (1, 3)
        )
        lines.append(
            f"{size:5} B: three bookies write {three / one:.0%} of the bytes that one writes, each second"
        )
    return lines


def main(words: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench bookies", description="Measures bookies.")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the data goes"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="measured time of a case (10)")
    parser.add_argument("--apache", action="store_true", help="a bookie of Apache's beside ours")
    parser.add_argument("--stored-gb", type=float, help="only the restart with so much stored")
    parser.add_argument("--free-memory", action="store_true", help="do not fill the page cache first")
    parser.add_argument("--json", type=Path, help="write everything measured there")
    chosen = parser.parse_args(words)
    found: dict[str, object] = {"machine": machine.describe(chosen.folder)}
    print("  ".join(str(value) for value in machine.describe(chosen.folder).values()))
    with PageCache(chosen.folder) as cache:
        if not chosen.free_memory:
            cache.fill()
        if chosen.stored_gb is not None:
            again = found["restart"] = restart(chosen.folder, chosen.stored_gb)
            print(
                f"killed with {again['stored_gb']:.1f} GB: serves {again['restart_s']:.2f} s after exec, "
                f"{again['cpu_s']:.2f} CPU s, {again['read_mb']:.0f} MB read"
            )
        else:
            found["cases"] = all_cases(chosen.folder, chosen.seconds, apache=chosen.apache)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


def all_cases(folder: Path, seconds: float, *, apache: bool) -> list[dict[str, float]]:
    """Measures and prints."""
    device_mb_per_s = device.sync_histogram(folder, 1 << 20, 3.0)["megabytes_per_s"]
    print(f"device, 1 MiB and a sync: {device_mb_per_s:.0f} MB/s")
    rows = []

    def tell(who: str, row: dict[str, float]) -> None:
        row["share_of_device"] = row["stored_mb_per_s"] / device_mb_per_s
        rows.append(row)
        print(told(who, row), flush=True)

    for layout in (ONE, THREE):
        for case in CASES:
            tell("ours", ours(folder, layout, case, seconds))
    if apache:
        for case in CASES:
            tell("Apache's", apaches(folder, case, seconds))
    print("\n".join(compared(rows)))
    return rows


if __name__ == "__main__":
    sys.exit(main())

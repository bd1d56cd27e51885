"""How long do writes pause when a bookie is killed?

    python -m bench bookie-kills [--kills N] [--folder DIR] [--json PATH]

Four bookies as processes on this machine, a ledger with E=3 Qw=3 Qa=2, everything synced. A client appends an
entry of 1 KiB every 2 ms, whatever happens. Every two seconds a bookie of the ensemble gets SIGKILL; it is
started again with its disk a second later, so that the fourth one takes its place and there is a fourth one
the next time. A pause is the longest time between two confirmations from a kill to the next one; a wait is an
entry's, from when it was due until it was confirmed. At the end the ledger is closed and read: every entry
must be there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from bench import machine
from bench.bookie_processes import Bookie, client
from magnetar.base.errors import LedgerError
from magnetar.ledger.client.ledger_client import LedgerOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.runtime import loop as event_loop

BOOKIES: Final = 4
LAYOUT: Final = QuorumLayout(3, 3, 2)
ENTRY_BYTES: Final = 1024
EVERY_S: Final = 0.002
BETWEEN_KILLS_S: Final = 2.0
DOWN_S: Final = 1.0
READ_BYTES: Final = 4 << 20


class Times:
    """When entries were due, and when they were confirmed."""

    def __init__(self) -> None:
        self.due: list[float] = []
        self.confirmed: list[float] = []
        self.error: LedgerError | None = None

    def durable(self, last_entry: int) -> None:
        now = time.perf_counter()
        self.confirmed += [now] * (last_entry + 1 - len(self.confirmed))

    def failed(self, error: LedgerError) -> None:
        self.error = error


async def run(running: list[Bookie], folders: Sequence[Path], kills: int) -> tuple[Times, list[float]]:
    """The load and the kills; when they were. Raises LedgerError, AssertionError."""
    ports = [one.port for one in running]
    ledgers = client(ports)
    times = Times()
    writer = await ledgers.create(LedgerOptions(layout=LAYOUT), times)
    killed: list[float] = []

    async def kill_one_by_one() -> None:
        for _ in range(kills):
            await asyncio.sleep(BETWEEN_KILLS_S - DOWN_S)
            members = writer.metadata.ensembles[-1][1]
            # Another member each time, wherever it stands in the ensemble.
            at = ports.index(int(members[len(killed) % len(members)].rpartition(":")[2]))
            killed.append(time.perf_counter())
            running[at].kill()
            await asyncio.sleep(DOWN_S)
            running[at] = await asyncio.to_thread(Bookie, folders[at], ports[at])
        await asyncio.sleep(BETWEEN_KILLS_S)

    killing = asyncio.ensure_future(kill_one_by_one())
    due = time.perf_counter()
    while not killing.done() and times.error is None:
        while due <= time.perf_counter():
            times.due.append(due)
            writer.append([len(times.due).to_bytes(ENTRY_BYTES, "big")])
            due += EVERY_S
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
    await killing
    closed = await writer.close()
    assert closed.last_entry + 1 == len(times.due) == len(times.confirmed)
    handle = await ledgers.open(writer.ledger_id)
    entry_id = 0
    while entry_id <= closed.last_entry:
        for entry in await handle.read(entry_id, closed.last_entry, READ_BYTES):
            assert int.from_bytes(entry.payload, "big") == entry_id + 1
            entry_id += 1
    await ledgers.close()
    return times, killed


def pauses_ms(confirmed: Sequence[float], killed: Sequence[float]) -> list[float]:
    """The longest time between two confirmations from each kill to the next."""
    marks = np.unique(np.array(confirmed))
    found = []
    for begin, end in zip(killed, [*killed[1:], float("inf")], strict=True):
        # From the last one before the kill on.
        first = max(int(np.searchsorted(marks, begin)) - 1, 0)
        found.append(float(np.diff(marks[first : np.searchsorted(marks, end)]).max() * 1000))
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench bookie-kills", description="Kills bookies.")
    parser.add_argument("--kills", type=int, default=30, help="how many bookies are killed (30)")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the data goes"
    )
    parser.add_argument("--json", type=Path, help="write everything measured there")
    chosen = parser.parse_args(words)
    # Lost connections and places that are taken are what this is about.
    logging.getLogger("magnetar").setLevel(logging.ERROR)
    described = machine.describe(chosen.folder)
    print("  ".join(str(value) for value in described.values()))
    with tempfile.TemporaryDirectory(dir=chosen.folder, prefix="bench-bookies-") as scratch:
        folders = [Path(scratch) / str(number) for number in range(BOOKIES)]
        running = [Bookie(folder) for folder in folders]
        try:
            times, killed = event_loop.run(run(running, folders, chosen.kills))
        finally:
            for one in running:
                one.close()
    pauses = pauses_ms(times.confirmed, killed)
    waits = (np.array(times.confirmed) - np.array(times.due)) * 1000
    print(
        f"{len(killed)} bookies killed under {1 / EVERY_S:.0f} entries/s of {ENTRY_BYTES} B; "
        f"{len(waits)} entries written, confirmed and read back\n"
        f"pause of writes: p50 {np.percentile(pauses, 50):.0f} ms, p99 {np.percentile(pauses, 99):.0f} ms, "
        f"longest {max(pauses):.0f} ms\n"
        f"wait of an entry: p50 {np.percentile(waits, 50):.1f} ms, p99 {np.percentile(waits, 99):.1f} ms, "
        f"longest {waits.max():.0f} ms"
    )
    if chosen.json is not None:
        found = {"machine": described, "pauses_ms": pauses, "wait_ms_max": float(waits.max())}
        chosen.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

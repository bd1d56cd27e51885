"""`./dev crashes`: kills and power cuts of the storage, many a minute, for as long as one likes.

    ./dev crashes kills [--count N] [--seed S]    a writer over a standalone's stores is killed at random
    ./dev crashes cuts  [--count N] [--seed S]    recordings of writers are played back up to random moments

Every acknowledgement is held against what is found afterwards (tests/support/log_writer.py). Kills of one run
share a folder, so each start recovers what all kills before it left; a new folder begins every 25 kills. The
first loss ends the run with its seed, and the folder stays. Cuts need a C compiler, neither needs root.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import (  # type: ignore[import-not-found]  # needs the path above
    disk_log,
    log_writer,
    recordings,
)

KILLS_PER_FOLDER: Final = 25
CUTS_PER_RECORDING: Final = 50
SAID_BYTES_MAX: Final = 6_000


def kill_once(data: Path, seed: int) -> bytes:
    """Forks a writer, kills it when it has said a random number of bytes; what it said."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        # A fork, not a new program: importing takes longer than the writer lives.
        os.close(read_end)
        os.dup2(write_end, 1)
        try:
            asyncio.run(log_writer.write(data, seed))
        finally:
            os._exit(4)
    os.close(write_end)
    goal, heard = random.Random(seed).randrange(1, SAID_BYTES_MAX), b""
    while len(heard) < goal:
        more = os.read(read_end, 1 << 16)
        if not more:
            raise AssertionError(f"the writer ended by itself: {os.waitpid(child, 0)[1]}")
        heard += more
    os.kill(child, signal.SIGKILL)
    while more := os.read(read_end, 1 << 16):
        heard += more
    os.close(read_end)
    os.waitpid(child, 0)
    # The last line may be cut, and others follow it.
    return heard[: heard.rfind(b"\n") + 1]


def kills(count: int, seed: int, folder: Path) -> int:
    """How many were done."""
    data, said = folder / "data", b""
    for number in range(count):
        if number % KILLS_PER_FOLDER == 0:
            shutil.rmtree(data, ignore_errors=True)
            said = b""
        said += kill_once(data, seed + number)
        if lost := asyncio.run(log_writer.lost(data, said)):
            raise AssertionError(f"kill {number}, seed {seed + number}, in {data}: {lost[:5]}")
        if number % 100 == 99:
            print(f"{number + 1} kills", flush=True)
    return count


def cuts(count: int, seed: int, folder: Path) -> int:
    """How many were done: half of them under a segment store, half under all stores together."""
    done = 0
    while done < count:
        for kind in (recordings.SEGMENTS, recordings.LOGS):
            root = folder / "root"
            notes = recordings.record(root, kind, seed=seed + done)
            number = min(CUTS_PER_RECORDING, count - done)
            for cut in disk_log.cuts(notes, root, folder, seed=seed + done, count=number):
                if lost := kind.lost(cut.folder, cut.said):
                    raise AssertionError(f"{kind.program.name}, {cut.story}: {lost[:5]}")
                done += 1
            shutil.rmtree(root)
            print(f"{done} cuts", flush=True)
    return done


def main() -> int:
    """Runs what the arguments say; the exit code."""
    parser = argparse.ArgumentParser(prog="./dev crashes")
    parser.add_argument("what", choices=("kills", "cuts"))
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="magnetar-crashes-"))
    began = time.monotonic()
    done = (kills if chosen.what == "kills" else cuts)(chosen.count, chosen.seed, folder)
    shutil.rmtree(folder)
    print(f"{done} {chosen.what}, nothing lost, seed {chosen.seed}, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

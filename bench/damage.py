"""Damages segment files at random and looks at what the store makes of it: `python -m bench.damage`.

Question: does damage cost its block and nothing else, and is it ever silent?

Stores are built by seed: several ledgers in several segments, sealed and active, in new and in recycled
files, with deleted ledgers. Each trial damages one file of one of them (a bit, some bytes, zeroed sectors, a
cut, a file renamed, doubled, swapped, emptied or zeroed), opens the store, and reads every entry that was
synced. Four things must not happen:

    wrong      an entry with other bytes than were written
    silent     an entry is gone, and nothing says that one may have been there
    too much   an entry is lost though its block was not touched
    refused    the store does not open

The last group before a kill is left alone where no mark follows it: damage there cannot be told from a
torn write (docs/internals/segment-format.md). A file that is missing is the ledgers' matter, which know
their ends.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.damage_images import KINDS, Builder, Damaged, Image, damage, options
from magnetar.base.errors import LostEntriesError, MagnetarError
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability

TRIALS_PER_IMAGE: Final = 50
_READ_BYTES: Final = 1 << 20


@dataclass
class Outcome:
    """What became of one trial."""

    damaged: Damaged
    lost: int = 0
    """Entries that cannot be read, all of them in damaged blocks, all said to be lost."""
    faults: list[str] = field(default_factory=list)
    """What must not happen."""


async def trial(image: Image, rng: random.Random, folder: Path) -> Outcome:
    """Damages a copy of the image in `folder`, which is empty, and reads everything."""
    files, damaged = damage(image, rng)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    outcome = Outcome(damaged)
    # Once more, as what the first start wrote must say the same.
    for _ in range(2 if rng.random() < 0.1 else 1):
        outcome.lost = 0
        try:
            store = await SegmentStore.open(folder, options=options(), durability=Durability.VOLATILE)
        except MagnetarError as error:
            outcome.faults.append(f"refused: {error}")
            break
        try:
            await _read_all(store, image, outcome)
        finally:
            await store.close()
    return outcome


async def _read_all(store: SegmentStore, image: Image, outcome: Outcome) -> None:
    damaged = outcome.damaged
    for ledger_id, wanted in image.entries.items():
        touched = {
            entry
            for place in image.places
            if place.ledger_id == ledger_id
            and place.file == damaged.file
            and place.start < damaged.stop
            and place.stop > damaged.start
            for entry in range(place.first, place.last + 1)
        }
        index = await store.reader.index_of(ledger_id)
        said_to = store.segments.last_lost(ledger_id)
        if store.segments.uncertain_end(index) is not None:
            said_to = len(wanted)
        for entry in range(len(wanted)):
            name = f"entry {ledger_id}:{entry}"
            if entry <= max(index.last_entry, said_to):
                try:
                    run = (await store.reader.read(index, entry, entry, _READ_BYTES))[0]
                except LostEntriesError as error:
                    if not error.first_entry <= entry <= (error.last_entry or entry):
                        outcome.faults.append(f"wrong: {name} is said to be {error}")
                else:
                    if (run.first_entry, run.entries) != (entry, [wanted[entry]]):
                        outcome.faults.append(f"wrong: {name}")
                    continue
            else:
                outcome.faults.append(f"silent: {name} is gone")
            outcome.lost += 1
            if entry not in touched:
                outcome.faults.append(f"too much: {name} was not touched")


async def run_trials(seed: int, count: int, root: Path) -> list[Outcome]:
    """`count` trials over stores that `seed` says, in folders below `root`."""
    outcomes: list[Outcome] = []
    image: Image | None = None
    for number in range(count):
        if image is None or number % TRIALS_PER_IMAGE == 0:
            rng = random.Random(f"{seed} image {number}")
            builder = root / f"image-{number}"
            builder.mkdir()
            image = await Builder(builder, rng).build(rng.choice(KINDS))
            shutil.rmtree(builder)
        folder = root / f"trial-{number}"
        folder.mkdir()
        outcome = await trial(image, random.Random(f"{seed} trial {number}"), folder)
        outcome.faults = [f"trial {number} ({image.kind}, {outcome.damaged}): {f}" for f in outcome.faults]
        outcomes.append(outcome)
        shutil.rmtree(folder)
    return outcomes


def main() -> int:
    """The command line; 1 when something happened that must not."""
    parser = argparse.ArgumentParser(prog="python -m bench.damage", description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000, help="damages to try (10000)")
    parser.add_argument("--seed", type=int, help="of what is tried; a new one when it is not given")
    given = parser.parse_args()
    seed = secrets.randbits(32) if given.seed is None else given.seed
    print(f"seed {seed}, {given.count} damages", flush=True)
    logging.getLogger("magnetar").setLevel(logging.CRITICAL + 1)
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="magnetar-damage-") as root:
        outcomes = asyncio.run(run_trials(seed, given.count, Path(root)))
    kinds = Counter(outcome.damaged.kind for outcome in outcomes)
    for kind, number in sorted(kinds.items()):
        of_kind = [outcome for outcome in outcomes if outcome.damaged.kind == kind]
        harmless = sum(not outcome.lost and not outcome.faults for outcome in of_kind)
        lost = sum(outcome.lost for outcome in of_kind)
        print(f"{kind:8} {number:6}  harmless {harmless:6}  lost entries, all in damaged blocks {lost:6}")
    faults = [fault for outcome in outcomes for fault in outcome.faults]
    counts = Counter(fault.rpartition("): ")[2].partition(":")[0] for fault in faults)
    for name in ("wrong", "silent", "too much", "refused"):
        print(f"{name:8} {counts[name]}")
    for fault in faults[:20]:
        print(fault)
    print(f"{time.monotonic() - begun_s:.0f} s; again with --seed {seed} --count {given.count}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

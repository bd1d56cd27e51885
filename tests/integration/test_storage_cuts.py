"""Power cuts without root: what a process wrote is played back up to a point, and what was not synced may be
there or not (support/disk_log.py). Everything acknowledged must be found. More of them: `./dev crashes`."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from support import disk_log, recordings
from support.disk_log import SAID
from support.recordings import Kind

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]

CUTS = 30
SEED = 20_261


@pytest.fixture(autouse=True)
def _needs_a_compiler() -> None:
    if reason := disk_log.why_impossible():
        pytest.skip(reason)


def losses(tmp_path: Path, kind: Kind, count: int = CUTS) -> list[str]:
    """What is lost after `count` cuts under a writer; the first cut that loses something ends it."""
    root = tmp_path / "root"
    for cut in disk_log.cuts(recordings.record(root, kind), root, tmp_path, seed=SEED, count=count):
        if lost := kind.lost(cut.folder, cut.said):
            return [f"{loss} ({cut.story})" for loss in lost]
    return []


def test_acknowledged_entries_survive_power_cuts(tmp_path: Path) -> None:
    """With segments recycled, rewritten and prewritten all the time, in a folder made just now."""
    assert losses(tmp_path, recordings.SEGMENTS) == []


def test_without_syncs_the_same_cuts_lose_entries(tmp_path: Path) -> None:
    """That the cuts do drop what is not synced, or the test above would prove nothing."""
    assert losses(tmp_path, recordings.UNSYNCED_SEGMENTS) != []


def test_metadata_that_was_written_survives_power_cuts(tmp_path: Path) -> None:
    assert losses(tmp_path, recordings.METADATA) == []


def test_metadata_in_sqlites_faster_mode_loses_writes(tmp_path: Path) -> None:
    """SQLite with synchronous=NORMAL does not sync its log at a commit: the cuts must notice."""
    assert losses(tmp_path, recordings.FAST_METADATA) != []


def test_a_log_survives_power_cuts(tmp_path: Path) -> None:
    """Entries, cursors, trimming and deletion over all stores of a standalone, in a new data folder."""
    assert losses(tmp_path, recordings.LOGS, 15) == []


def test_a_folder_opens_after_a_cut_while_it_is_made(tmp_path: Path) -> None:
    """Cut before and after each name that is given to a small file, also when it came without its bytes."""
    root, cut = tmp_path / "root", tmp_path / "cut"
    notes = recordings.record(root, recordings.LOGS._replace(bytes_of_acks=1))
    device, chance = disk_log.Device(root), random.Random(SEED)
    tried = 0
    for note in notes:
        if note.path.endswith(SAID):
            break
        device.play(note)
        if note.kind in "RM" and tried < 16:
            tried += 1
            for manner in (disk_log.Manner(0, 1, 0), disk_log.Manner(0, 0, 0)):
                device.leave(cut, chance, manner)
                assert recordings.LOGS.lost(cut, b"") == [], (note.kind, note.path, str(manner))
                shutil.rmtree(cut)
    assert tried > 4


OFFLOADER = """
import asyncio, os, sys
from pathlib import Path
from magnetar.tiered.stores.local import LocalStore

async def main(root):
    store = LocalStore(root / "offloaded")
    for number in range(20):
        file = root / "file"
        file.write_bytes(b"%d" % number * 10_000)
        await store.put(f"tenant/topic-{number % 3}/{number}", file)
        file.unlink()
        os.write(1, b"%d\\n" % number)

asyncio.run(main(Path(sys.argv[1])))
"""


def lost_objects(folder: Path, said: bytes) -> list[str]:
    names = [int(line) for line in said.split(b"\n")[:-1]]
    places = {name: folder / "offloaded" / "tenant" / f"topic-{name % 3}" / f"{name}" for name in names}
    return [
        str(name)
        for name, place in places.items()
        if not place.exists() or place.read_bytes() != b"%d" % name * 10_000
    ]


def test_offloaded_objects_survive_power_cuts(tmp_path: Path) -> None:
    """The folder itself had no durable name: after a cut all history that was offloaded was gone."""
    program = tmp_path / "offloader.py"
    program.write_text(OFFLOADER)
    kind = Kind(program, lambda root, seed: [str(root)], 50, lost_objects)
    assert losses(tmp_path, kind, 60) == []

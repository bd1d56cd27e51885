"""Power cuts without root: what a process wrote is played back up to a point, and what was not synced may be
there or not (support/disk_log.py). Everything acknowledged must be found, each time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support import disk_log, metadata_writer, storage_processes
from support.disk_log import SAID, Note

pytestmark = pytest.mark.process

CUTS = 40
SEED = 20_261


@pytest.fixture(autouse=True)
def _needs_a_compiler() -> None:
    if reason := disk_log.why_impossible():
        pytest.skip(reason)


def record(root: Path, program: Path, *arguments: str, bytes_of_acks: int) -> list[Note]:
    """Runs the program until it has said so much, kills it, and returns what it did below `root`."""
    root.mkdir()
    said, notes = root / f"writer{SAID}", root.with_name("notes")
    with said.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(program), *arguments],
            stdout=out,
            env=disk_log.environment(root, notes=notes),
        )
        try:
            while said.stat().st_size < bytes_of_acks:
                assert process.poll() is None, "the writer ended by itself"
                time.sleep(0.005)
        finally:
            process.kill()
            process.wait()
    return disk_log.read_notes(notes)


def losses(
    tmp_path: Path, notes: list[Note], lost: Callable[[Path, bytes], list[str]], count: int = CUTS
) -> list[str]:
    """What `lost` finds after `count` cuts."""
    found = []
    for cut in disk_log.cuts(notes, tmp_path / "root", tmp_path, seed=SEED, count=count):
        found += [f"{loss} ({cut.story})" for loss in lost(cut.folder, cut.said)]
    return found


def record_segments(tmp_path: Path, mode: str = "fsync") -> list[Note]:
    return record(
        tmp_path / "root",
        storage_processes.PROGRAM,
        *(str(tmp_path / "root" / "store"), "1", "100", str(1 << 18), mode),
        bytes_of_acks=3000,
    )


def lost_entries(folder: Path, said: bytes) -> list[str]:
    acknowledged = storage_processes.Acknowledged()
    acknowledged.note(said)
    return asyncio.run(storage_processes.lost_entries(folder / "store", acknowledged))


def test_acknowledged_entries_survive_power_cuts(tmp_path: Path) -> None:
    """With segments recycled, rewritten and prewritten all the time, in a folder made just now."""
    notes = record_segments(tmp_path)
    assert {"R", "U", "S", "F", "T"} <= {note.kind for note in notes}
    assert losses(tmp_path, notes, lost_entries) == []


def test_without_syncs_the_same_cuts_lose_entries(tmp_path: Path) -> None:
    """That the cuts do drop what is not synced, or the test above would prove nothing."""
    assert losses(tmp_path, record_segments(tmp_path, "no-sync"), lost_entries, 7) != []


def record_metadata(tmp_path: Path, mode: str = "fsync") -> list[Note]:
    return record(
        tmp_path / "root",
        Path(metadata_writer.__file__),
        *(str(tmp_path / "root" / "metadata" / "metadata.db"), "0", mode),
        bytes_of_acks=4000,
    )


def lost_metadata(folder: Path, said: bytes) -> list[str]:
    return metadata_writer.lost_writes(folder / "metadata" / "metadata.db", said)


def test_metadata_that_was_written_survives_power_cuts(tmp_path: Path) -> None:
    assert losses(tmp_path, record_metadata(tmp_path), lost_metadata) == []


def test_metadata_in_sqlites_faster_mode_loses_writes(tmp_path: Path) -> None:
    """SQLite with synchronous=NORMAL does not sync its log at a commit: the cuts must notice."""
    assert losses(tmp_path, record_metadata(tmp_path, "normal"), lost_metadata) != []

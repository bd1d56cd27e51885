"""Writers whose writes are noted (disk_log.py), and what they must find again after a cut."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from support import disk_log, log_writer, metadata_writer, storage_processes
from support.disk_log import SAID, Note


class Kind(NamedTuple):
    """One writer."""

    program: Path
    arguments: Callable[[Path, int], list[str]]
    """For the folder that is recorded, and a seed."""
    bytes_of_acks: int
    """It is killed when it has said so much."""
    lost: Callable[[Path, bytes], list[str]]
    """What is not found in a folder of all that was said."""


def _lost_entries(folder: Path, said: bytes) -> list[str]:
    acknowledged = storage_processes.Acknowledged()
    acknowledged.note(said)
    return asyncio.run(storage_processes.lost_entries(folder / "store", acknowledged))


def _segments(mode: str) -> Kind:
    return Kind(
        storage_processes.PROGRAM,
        lambda root, seed: [str(root / "store"), str(seed), "100", str(1 << 18), mode],
        3_000,
        _lost_entries,
    )


def _metadata(mode: str) -> Kind:
    return Kind(
        Path(metadata_writer.__file__),
        lambda root, seed: [str(root / "metadata" / "metadata.db"), "0", mode],
        4_000,
        lambda folder, said: metadata_writer.lost_writes(folder / "metadata" / "metadata.db", said),
    )


SEGMENTS = _segments("fsync")
UNSYNCED_SEGMENTS = _segments("no-sync")
METADATA = _metadata("fsync")
FAST_METADATA = _metadata("normal")
LOGS = Kind(
    Path(log_writer.__file__),
    lambda root, seed: [str(root / "data"), str(seed)],
    12_000,
    lambda folder, said: asyncio.run(log_writer.lost(folder / "data", said)),
)


def record(root: Path, kind: Kind, *, seed: int = 1) -> list[Note]:
    """Runs the writer in the new folder `root` until it has said enough, kills it; what it did there."""
    root.mkdir()
    said, notes = root / f"writer{SAID}", root.with_name("notes")
    notes.unlink(missing_ok=True)
    with said.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(kind.program), *kind.arguments(root, seed)],
            stdout=out,
            env=disk_log.environment(root, notes=notes),
        )
        try:
            while said.stat().st_size < kind.bytes_of_acks and process.poll() is None:
                time.sleep(0.005)
        finally:
            code = process.poll()
            process.kill()
            process.wait()
    assert code in (None, 0), "the writer failed"
    return disk_log.read_notes(notes)

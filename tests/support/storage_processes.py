"""Killing the writer process, and checking what it left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from magnetar.base.errors import CorruptDataError
from support.storage import entries_of, store_in
from support.storage_writer import content

PROGRAM = Path(__file__).with_name("storage_writer.py")


@dataclass
class Acknowledged:
    """What writers said."""

    last: dict[int, int] = field(default_factory=dict)
    deleting: set[int] = field(default_factory=set)
    """Deletions that began: they may be durable without a word."""
    deleted: set[int] = field(default_factory=set)
    recycled: int = 0
    """Segments made of files that were written before."""

    def note(self, lines: bytes) -> None:
        """Takes whole lines; the last one may be cut."""
        for line in lines.split(b"\n")[:-1]:
            word, number = line.split()
            if word == b"deleting":
                self.deleting.add(int(number))
            elif word == b"deleted":
                self.deleted.add(int(number))
            elif word == b"recycled":
                self.recycled += 1
            else:
                self.last[int(word)] = int(number)

    @property
    def next_ledger(self) -> int:
        """An id that no writer used; some ids may have been used without a word."""
        return max(self.last, default=0) + 100


def write_and_kill(
    folder: Path,
    acknowledged: Acknowledged,
    *,
    seed: int,
    bytes_of_acks: int,
    segment_bytes: int,
    sync: bool = True,
) -> None:
    """Runs the writer until it has said about so many bytes, and kills it."""
    command = [sys.executable, str(PROGRAM), str(folder), str(seed), str(acknowledged.next_ledger)]
    with subprocess.Popen(
        [*command, str(segment_bytes), "fsync" if sync else "no-sync"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        heard = b""
        while len(heard) < bytes_of_acks:
            more = os.read(process.stdout.fileno(), 1 << 16)
            assert more, f"the writer ended by itself: {process.wait()}"
            heard += more
        process.send_signal(signal.SIGKILL)
        # What was acknowledged before the kill arrived counts too.
        heard += process.stdout.read()
    acknowledged.note(heard)


async def lost_entries(folder: Path, acknowledged: Acknowledged, first_ledger: int = 0) -> list[str]:
    """Opens what the writers left and compares: every acknowledged entry that is missing or wrong.

    Only ledgers from `first_ledger` on are looked at.
    """
    lost: list[str] = []
    async with store_in(folder) as store:
        for ledger_id, last in acknowledged.last.items():
            if ledger_id < first_ledger:
                continue
            if ledger_id in acknowledged.deleted:
                if ledger_id in store.ledger_ids():
                    lost.append(f"ledger {ledger_id} came back")
                continue
            index = await store.reader.index_of(ledger_id)
            if index.last_entry < last:
                if ledger_id not in acknowledged.deleting:
                    lost.append(f"ledger {ledger_id}: {index.last_entry} instead of {last}")
                continue
            try:
                entries = await entries_of(store, ledger_id)
            except CorruptDataError as error:
                lost.append(f"ledger {ledger_id} cannot be read: {error}")
                continue
            for entry_id, entry in enumerate(entries):
                if entry != content(ledger_id, entry_id):
                    lost.append(f"entry {ledger_id}:{entry_id} is wrong")
    return lost

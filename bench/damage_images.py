"""Segment stores as a crash or a clean end leaves them, built by seed, and ways to damage them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from magnetar.base.errors import StorageError
from magnetar.base.ids import LedgerId
from magnetar.bookie.appender import LedgerAppender
from magnetar.bookie.segment import DATA_OFFSET
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability, StoreOptions

SEGMENT_BYTES: Final = 32 << 10
SECTOR_BYTES: Final = 512
KINDS: Final = ("closed", "active", "unmarked", "recycled")
"""Ended cleanly; killed when idle; killed while it wrote; killed when idle, in files of a former life."""
_LEDGERS: Final = 8
_SETTLE_S: Final = 20.0


class _Listener:
    """The listener of a writer; ignores every notice."""

    def durable(self, last_entry: int) -> None:
        pass

    def failed(self, error: StorageError) -> None:
        raise error


class Place(NamedTuple):
    """A block of entries in a file."""

    file: str
    start: int
    stop: int
    ledger_id: LedgerId
    first: int
    last: int


@dataclass
class Image:
    """A store's files, and what was synced in them."""

    kind: str
    files: dict[str, bytes]
    entries: dict[LedgerId, list[bytes]]
    """Entries of each ledger that is not deleted."""
    places: list[Place]
    spared: tuple[str, int]
    """From this offset on a file holds a group that nothing says was synced; ("", 0): there is none."""


def options(*, marked: bool = True) -> StoreOptions:
    """Small segments; `marked`: an idle log's end is marked at once."""
    mark_ms = 1 if marked else 3_600_000
    return StoreOptions(segment_bytes=SEGMENT_BYTES, idle_mark_ms=mark_ms, rewrite_interval_s=3600.0)


class Builder:
    """Writes ledgers into a store in a folder, which is empty at first."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder = folder
        self._rng = rng
        self._appenders: dict[LedgerId, LedgerAppender] = {}
        self._entries: dict[LedgerId, list[bytes]] = {}

    async def build(self, kind: str) -> Image:
        """The store, as `kind` says."""
        rng = self._rng
        first_id = 1
        if kind == "recycled":
            # A life before: all of it is deleted, and its files are written over.
            store = await self._open(marked=True)
            before = [LedgerId(1), LedgerId(2), LedgerId(3)]
            await self._write(store, before, 150)
            for ledger_id in before:
                await store.delete(ledger_id)
            await store.close()
            self._entries, self._appenders, first_id = {}, {}, 4
        store = await self._open(marked=kind != "unmarked")
        ids = list(map(LedgerId, range(first_id, first_id + _LEDGERS)))
        await self._write(store, ids, rng.randint(30, 200))
        for ledger_id in rng.sample(ids, 2):
            await store.delete(ledger_id)
            ids.remove(ledger_id)
            self._entries.pop(ledger_id, None)
        await self._write(store, ids, rng.randint(1, 30), kind)
        if kind == "closed":
            await store.close()
            files = self._files()
        else:
            files = await self._quiet_files(store, marked=kind != "unmarked")
            await store.close()
        places = [place for ledger_id in self._entries for place in self._places(ledger_id)]
        last = max(places, key=lambda place: (place.file, place.start))
        # The START block of a segment is in the group of the first block behind it.
        start = last.start if last.start > DATA_OFFSET + SECTOR_BYTES else DATA_OFFSET
        return Image(
            kind, files, self._entries, places, (last.file, start) if kind == "unmarked" else ("", 0)
        )

    async def _open(self, *, marked: bool) -> SegmentStore:
        return await SegmentStore.open(
            self._folder, options=options(marked=marked), durability=Durability.VOLATILE
        )

    async def _write(self, store: SegmentStore, ids: list[LedgerId], count: int, kind: str = "") -> None:
        rng = self._rng
        for _ in range(count):
            ledger_id = rng.choice(ids)
            if ledger_id not in self._appenders:
                self._appenders[ledger_id] = store.appender(ledger_id, _Listener())
            have = self._entries.setdefault(ledger_id, [])
            values = [
                b"%d:%d:" % (ledger_id, len(have) + number) + rng.randbytes(rng.randint(0, 300))
                for number in range(rng.randint(1, 5))
            ]
            self._appenders[ledger_id].append(list(values), None, len(have), 1)
            have += values
            if kind == "unmarked" or rng.random() < 0.7:
                await self._appenders[ledger_id].settle()
        for appender in self._appenders.values():
            await appender.settle()

    def _files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self._folder)): path.read_bytes()
            for path in [
                *(self._folder / name for name in ("FORMAT", "INSTANCEID")),
                *sorted((self._folder / "segments").glob("*.seg")),
            ]
        }

    async def _quiet_files(self, store: SegmentStore, *, marked: bool) -> dict[str, bytes]:
        """What a kill leaves when the store is idle: no thread works on files, the mark is written."""
        async with asyncio.timeout(_SETTLE_S):
            before: dict[str, bytes] = {}
            while True:
                await asyncio.sleep(0.005)
                sealed = [segment.sealed is not None for segment in store.segments]
                try:
                    files = self._files()
                except FileNotFoundError:
                    continue
                if sealed.count(False) == 1 and files == before and not (marked and not store.mark.is_marked):
                    return files
                before = files

    def _places(self, ledger_id: LedgerId) -> list[Place]:
        return [
            Place(
                f"segments/{place.segment_id:016x}.seg",
                place.offset,
                place.offset + place.size,
                ledger_id,
                place.first_entry,
                place.last_entry,
            )
            for part in self._appenders[ledger_id].index.parts
            for place in map(part.place, range(len(part)))
        ]


# -- damaging ---------------------------------------------------------------------------------------


class Damaged(NamedTuple):
    """What was done to a store's files."""

    kind: str
    file: str
    start: int
    """Bytes from here..."""
    stop: int
    """...to here are not what they were; none when both are equal."""


def damage(image: Image, rng: random.Random) -> tuple[dict[str, bytes], Damaged]:
    """The image's files with one thing wrong, and what that is."""
    files = dict(image.files)
    names = [name for name in files if name.endswith(".seg")]
    name = rng.choice(names)
    data = files[name]
    limit = image.spared[1] if image.spared[0] == name else len(data)
    kind = rng.choice(("bit", "bit", "bit", "bits", "bytes", "sectors", "sectors", "cut", "file"))
    if kind == "file":
        return _misplaced(files, name, names, rng)
    if kind == "cut":
        at = _somewhere(data, limit, rng)
        files[name] = data[:at]
        return files, Damaged(kind, name, at, len(data))
    at = _somewhere(data, limit, rng)
    if kind == "bit":
        new = bytes([data[at] ^ (1 << rng.randrange(8))])
    elif kind == "bits":
        new = bytes(byte ^ (1 << rng.randrange(8)) for byte in data[at : min(at + rng.randint(2, 8), limit)])
    elif kind == "bytes":
        new = rng.randbytes(min(1400, limit - at))
    else:
        at -= at % SECTOR_BYTES
        new = bytes(min(SECTOR_BYTES * rng.randint(1, 8), limit - at))
    files[name] = data[:at] + new + data[at + len(new) :]
    return files, Damaged(kind, name, at, at + len(new))


def _somewhere(data: bytes, limit: int, rng: random.Random) -> int:
    """An offset below `limit`; as often in the header's page or the footer as in the blocks."""
    used = min(len(data.rstrip(b"\0")), limit)
    place = rng.random()
    if place < 0.15:
        return rng.randrange(min(128, limit))
    if place < 0.3:
        return rng.randrange(min(2 * DATA_OFFSET, limit))
    if place < 0.55 and used > 1500:
        return rng.randrange(used - 1500, used)
    return rng.randrange(max(used, 1))


def _misplaced(
    files: dict[str, bytes], name: str, names: list[str], rng: random.Random
) -> tuple[dict[str, bytes], Damaged]:
    data = files[name]
    free = f"segments/{rng.randrange(1 << 20, 1 << 21):016x}.seg"
    kind = rng.choice(("renamed", "doubled", "swapped", "emptied", "zeroed"))
    if kind == "renamed":
        files[free] = files.pop(name)
    elif kind == "doubled":
        files[free] = data
    elif kind == "swapped":
        other = rng.choice(names)
        files[name], files[other] = files[other], data
    elif kind == "emptied":
        files[name] = b""
        return files, Damaged(kind, name, 0, len(data))
    else:
        files[name] = bytes(len(data))
        return files, Damaged(kind, name, 0, len(data))
    return files, Damaged(kind, name, 0, 0)

"""What a power cut may leave, without cutting the power: a process's writes are noted and played back.

Theory of operation. A library (disk_log.c) is loaded before the process under test and notes each write,
sync and change of a name below one folder, those of SQLite, of helper processes and of libraries too.
A `Device` plays the notes up to some point and keeps apart what a sync has covered from what is only in
the page cache. `leave` then makes a folder as the device could hold it: what was covered is there, and of
the rest anything, everything or nothing, writes torn at sectors, names without data, data without names.

It is stricter than most file systems: a name is there for good only after its folder was synced.
Needs a C compiler, and no root.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_SOURCE: Final = Path(__file__).with_name("disk_log.c")
_HEAD: Final = struct.Struct("<BBHHHQQQQ")
_SECTOR: Final = 512
SAID: Final = ".said"
"""Files of this ending are what the process told the world: no part of the disk."""
_IGNORED: Final = (SAID, "-shm", ".lock", "/LOCK")
"""SQLite makes its index (-shm) anew whenever it opens a file alone; locks hold nothing."""


def why_impossible() -> str | None:
    """Why nothing can be noted here; None when it can."""
    if not os.path.exists("/proc/self/fd"):
        return "needs /proc"
    return None if shutil.which("cc") else "needs a C compiler"


@cache
def library() -> Path:
    """The compiled library."""
    return made_of(_SOURCE)


def made_of(source: Path) -> Path:
    """A library to be loaded before programs; compiled once for each state of its source."""
    name = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    made = Path(tempfile.gettempdir()) / f"magnetar-{source.stem}-{os.getuid()}-{name}.so"
    if not made.exists():
        unfinished = made.with_suffix(f".{os.getpid()}")
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", unfinished, source, "-ldl"],
            check=True,
        )
        unfinished.replace(made)
    return made


def environment(root: Path, *, notes: Path | None = None, fail: Path | None = None) -> dict[str, str]:
    """Variables for a process whose writes below `root` go to the file `notes`, and whose syncs fail where
    the path contains what stands in the file `fail`, as long as that exists."""
    variables = {**os.environ, "LD_PRELOAD": str(library()), "DISK_LOG_ROOT": str(root.resolve())}
    if notes is not None:
        notes.touch()
        variables["DISK_LOG_FILE"] = str(notes)
    if fail is not None:
        variables["DISK_LOG_FAIL"] = str(fail)
    return variables


class Note(NamedTuple):
    """One call that succeeded, or a sync that failed."""

    at: int
    """Its place among the notes, in bytes."""
    kind: str
    """C create, T truncate, F allocate, W write, S sync, R rename, L link, U unlink, M mkdir, X rmdir."""
    error: int
    path: str
    second: str
    inode: int
    offset: int
    length: int
    data: bytes


def read_notes(file: Path) -> list[Note]:
    """All whole notes: the last one of a process that was killed may be cut."""
    text, found, at = file.read_bytes(), [], 0
    while at + _HEAD.size <= len(text):
        kind, error, size, second, _, inode, offset, length, data = _HEAD.unpack_from(text, at)
        path_at = at + _HEAD.size
        second_at = path_at + size
        data_at = second_at + second
        end = data_at + data
        if end > len(text):
            break
        names = text[path_at:second_at].decode(), text[second_at:data_at].decode()
        found.append(Note(at, chr(kind), error, *names, inode, offset, length, text[data_at:end]))
        at = end
    return found


class _Change(NamedTuple):
    """To the bytes of a file; `data` None: to its size."""

    at: int
    offset: int
    data: bytes | None
    shrinks: bool
    doomed: bool


@dataclass
class _File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[_Change] = field(default_factory=list)

    def sync(self, begin: int, *, failed: bool) -> None:
        if failed:
            # The kernel has dropped what it could not write: no later sync brings it back.
            self.pending = [c._replace(doomed=c.doomed or c.at < begin) for c in self.pending]
            return
        for change in self.pending:
            if change.at < begin and not change.doomed:
                _apply(self.durable, change)
        self.pending = [c for c in self.pending if c.at >= begin or c.doomed]


class _Naming(NamedTuple):
    """`removed` goes, `added` names file `number` (None: a folder)."""

    at: int
    removed: str
    added: str
    number: int | None

    @property
    def folders(self) -> set[str]:
        return {os.path.dirname(path) for path in (self.removed, self.added) if path}


def _apply(content: bytearray, change: _Change) -> None:
    if change.data is not None:
        if len(content) < change.offset:
            content.extend(bytes(change.offset - len(content)))
        content[change.offset : change.offset + len(change.data)] = change.data
    elif change.shrinks:
        del content[change.offset :]
        content.extend(bytes(change.offset - len(content)))
    elif len(content) < change.offset:
        content.extend(bytes(change.offset - len(content)))


class Manner(NamedTuple):
    """How likely each thing that was not synced is there all the same."""

    data: float
    names: float
    torn: float

    def __str__(self) -> str:
        return f"data {self.data:g}, names {self.names:g}, torn {self.torn:g}"


MANNERS: Final = (
    Manner(0, 0, 0),
    Manner(1, 1, 0),
    Manner(0, 1, 0),
    Manner(1, 0, 0),
    Manner(0.5, 0.5, 0),
    Manner(0.5, 1, 0.5),
    Manner(0.9, 0.9, 0.1),
)


class Device:
    """The disk below one folder, as the notes tell it."""

    def __init__(self, root: Path) -> None:
        self.root = str(root.resolve())
        self.said = b""
        """What the process told the world until now."""
        self._files: dict[int, _File] = {}
        self._by_inode: dict[int, int] = {}
        self._live: dict[str, int | None] = {self.root: None}
        self._names: dict[str, int | None] = {self.root: None}
        self._namings: list[_Naming] = []

    def play(self, note: Note) -> None:
        """Takes the next note."""
        if note.path.endswith(SAID):
            self.said += note.data
        elif not (note.path + note.second).endswith(_IGNORED):
            self._PLAYS[note.kind](self, note)

    def _create(self, note: Note) -> None:
        number = len(self._files)
        self._files[number] = _File()
        self._by_inode[note.inode] = number
        self._name(note.at, "", note.path, number)

    def _name(self, at: int, removed: str, added: str, number: int | None) -> None:
        if removed:
            self._live.pop(removed, None)
        if added:
            self._live[added] = number
        self._namings.append(_Naming(at, removed, added, number))

    def _write(self, note: Note) -> None:
        self._change(note, note.offset, note.data)

    def _resize(self, note: Note) -> None:
        self._change(note, note.length, None)

    def _change(self, note: Note, offset: int, data: bytes | None) -> None:
        # What has no name any more cannot come back.
        if (number := self._by_inode.get(note.inode)) is not None:
            change = _Change(note.at, offset, data, note.kind == "T", doomed=False)
            self._files[number].pending.append(change)

    def _sync(self, note: Note) -> None:
        failed = note.error != 0
        number = self._by_inode.get(note.inode)
        if number is not None and self._live.get(note.path, number) is not None:
            self._files[number].sync(note.offset, failed=failed)
        elif not failed:
            later = []
            for naming in self._namings:
                if naming.at < note.offset and note.path in naming.folders:
                    self._take(self._names, naming)
                else:
                    later.append(naming)
            self._namings = later

    def _rename(self, note: Note) -> None:
        number = self._live[note.path]
        assert number is not None, f"a folder was renamed: {note.path}"
        self._name(note.at, note.path, note.second, number)

    def _link(self, note: Note) -> None:
        self._name(note.at, "", note.second, self._live[note.path])

    def _remove(self, note: Note) -> None:
        self._name(note.at, note.path, "", None)

    def _make_folder(self, note: Note) -> None:
        self._name(note.at, "", note.path, None)

    def _unknown(self, note: Note) -> None:
        raise AssertionError(f"{note.second or note.kind} on {note.path} cannot be played back")

    _PLAYS: Final = {
        "C": _create,
        "W": _write,
        "T": _resize,
        "F": _resize,
        "S": _sync,
        "R": _rename,
        "L": _link,
        "U": _remove,
        "X": _remove,
        "M": _make_folder,
        "?": _unknown,
    }

    @staticmethod
    def _take(names: dict[str, int | None], naming: _Naming) -> None:
        names.pop(naming.removed, None)
        if naming.added:
            names[naming.added] = naming.number

    def leave(self, folder: Path, chance: random.Random, manner: Manner) -> None:
        """Makes in the new folder `folder` what the device may hold if the power goes now."""
        names = dict(self._names)
        for naming in self._namings:
            if chance.random() < manner.names:
                self._take(names, naming)
        folder.mkdir()
        for path in sorted(names):
            place = folder / os.path.relpath(path, self.root)
            if path == self.root or not place.parent.is_dir():
                continue
            if (number := names[path]) is None:
                place.mkdir()
            else:
                place.write_bytes(self._content(self._files[number], chance, manner))

    @staticmethod
    def _content(file: _File, chance: random.Random, manner: Manner) -> bytes:
        content = bytearray(file.durable)
        for change in file.pending:
            if chance.random() >= manner.data:
                continue
            if change.data is None or chance.random() >= manner.torn:
                _apply(content, change)
                continue
            for at in range(0, len(change.data), _SECTOR):
                if chance.random() < 0.5:
                    sector = change.data[at : at + _SECTOR]
                    _apply(content, change._replace(offset=change.offset + at, data=sector))
        return bytes(content)


class Cut(NamedTuple):
    """One power cut."""

    folder: Path
    """What it left."""
    said: bytes
    """What the process had told the world by then."""
    story: str
    """Where and how it was cut, for a failure's text."""


def cuts(notes: list[Note], root: Path, scratch: Path, *, seed: int, count: int) -> Iterator[Cut]:
    """Cuts the power `count` times at random notes, in all manners; each folder lasts until the next one."""
    chance = random.Random(seed)
    places = sorted(chance.choices(range(1, len(notes) + 1), k=count))
    device, played = Device(root), 0
    for number, place in enumerate(places):
        for note in notes[played:place]:
            device.play(note)
        played = place
        manner = MANNERS[number % len(MANNERS)]
        folder = scratch / f"cut-{number}"
        device.leave(folder, chance, manner)
        story = f"seed {seed}, cut {number} of {count} after note {place} of {len(notes)}: {manner}"
        yield Cut(folder, device.said, story)
        shutil.rmtree(folder)

"""Checks the write-ahead log of a metadata file that was not closed for commits lost to damage.

SQLite reads a log up to the first frame that fails its checksum, and drops the rest silently. That is right
for a write that a crash cut short, and wrong for commits that were synced and damaged later. A crash cuts one
commit at most, as each is synced before the next begins. So damage is certain in three cases:

- Flipping one bit of a frame makes it whole, also in the last commit. The bit is corrected if no other bit
  does the same, as in three of four cases (the sums do not distinguish the highest bits of many words).
- Whole frames of a later commit follow.
- The index of the log, `-shm`, counts more frames. SQLite writes the count there once the frames are synced,
  and the count of a killed process is kept.

After a power cut the index may be of any earlier moment. Damage of more than one bit in the last commit alone
then looks like a write that was cut short.

    header   magic u32, format u32, page size u32, number u32, salt u32 x2, checksum u32 x2     big-endian
    frame    page u32, pages of the file after a commit or 0 u32, salt u32 x2, checksum u32 x2, the page

A checksum covers the header's first 24 bytes, then 8 bytes and the page of each frame. Each continues from
the one before, in words of the byte order that the magic names.

    index    twice: version, 0, changes, flags u32 x4, frames u32, pages u32, sums of the last frame u32 x2,
             salt as in the log, sums of these 40 bytes u32 x2; then frames copied to the file u32     native

Source: SQLite's file format, "The Write-Ahead Log" and "The WAL-Index File Format".
"""

from __future__ import annotations

import logging
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from operator import mul
from pathlib import Path
from typing import Final, NamedTuple

from magnetar.base.errors import CorruptDataError

_log = logging.getLogger("magnetar.metadata")

_HEADER_BYTES: Final = 32
_FRAME_HEAD_BYTES: Final = 24
_MAGIC: Final = 0x377F0682
"""Magic number; its last bit is set when words are big-endian."""
_FORMAT: Final = 3_007_000
_PAGE_BYTES: Final = frozenset(1 << shift for shift in range(9, 17))
_WORD: Final = (1 << 32) - 1
_BIG_ENDIAN: Final = sys.byteorder == "big"

_LOST: Final = (
    "commits that were synced are damaged in the log of the metadata. Nothing was changed; restore {} with "
    "its metadata.db from a backup, or make the metadata anew from what is whole with "
    "`magnetar storage rebuild-metadata`; messages that it does not name are kept"
)


_INDEX: Final = struct.Struct("=4I2I2I8s2I")
_INDEX_SUMMED_BYTES: Final = 40
_COPIED: Final = struct.Struct("=I")


class Noted(NamedTuple):
    """Counts of frames in the index of a log."""

    frames: int
    """Frames that were synced."""
    copied: int
    """Frames that are copied into the file."""
    salts: bytes


def noted_in(index: bytes) -> list[Noted]:
    """The counts of each undamaged copy in the index; empty for a damaged index or another format."""
    found: list[Noted] = []
    if len(index) < 2 * _INDEX.size + _COPIED.size:
        return found
    (copied,) = _COPIED.unpack_from(index, 2 * _INDEX.size)
    for at in (0, _INDEX.size):
        version, *_, frames, _, _, _, salts, first, second = _INDEX.unpack_from(index, at)
        summed = index[at : at + _INDEX_SUMMED_BYTES]
        if version == _FORMAT and (first, second) == checksum(summed, (0, 0), big_endian=_BIG_ENDIAN):
            found.append(Noted(frames, copied, salts))
    return found


class Mended(NamedTuple):
    """A flipped bit."""

    offset: int
    """Offset of its byte in the log."""
    bit: int


def checksum(data: bytes, sums: tuple[int, int], *, big_endian: bool) -> tuple[int, int]:
    """The checksum of `data`, whose length is a multiple of 8 bytes, continued from `sums`."""
    words = struct.unpack(f"{'>' if big_endian else '<'}{len(data) // 4}I", data)
    firsts, seconds, (to_first, to_second) = _weights(len(words))
    # Each sum is computed as a sum of products; a loop over the words would take 20 times as long.
    first = sum(map(mul, words, firsts)) + firsts[0] * sums[0] + to_first * sums[1]
    second = sum(map(mul, words, seconds)) + seconds[0] * sums[0] + to_second * sums[1]
    return first & _WORD, second & _WORD


@cache
def _weights(words: int) -> tuple[list[int], list[int], tuple[int, int]]:
    """How the two sums change when a word, or a sum before, grows by 1: for each of `words` words what it
    adds to the first and to the second sum, and what 1 in the second sum before adds to both. 1 in the first
    sum before has the effect of 1 in the first word.

    The rule of each pair of words: first += word + second; second += other word + first.
    """
    added = [(0, 1), (1, 1)]
    while len(added) < words:
        added += [_one_pair_earlier(added[-2]), _one_pair_earlier(added[-1])]
    added.reverse()
    return [one for one, _ in added], [other for _, other in added], _one_pair_earlier(added[1])


@dataclass(slots=True)
class _Frame:
    covered: bytes
    """The bytes that its checksum covers."""
    salts: bytes
    stored: tuple[int, int]
    ends_commit: bool


class _Log:
    """The bytes of one log."""

    def __init__(self, data: bytes) -> None:
        magic, _, page_bytes = struct.unpack_from(">3I", data)
        self.data = data
        self.big_endian = bool(magic & 1)
        self.salts = data[16:24]
        self.frame_bytes: int = page_bytes + _FRAME_HEAD_BYTES
        self.sums: tuple[int, int] = struct.unpack_from(">2I", data, 24)

    @property
    def header_is_good(self) -> bool:
        magic, version, page_bytes = struct.unpack_from(">3I", self.data)
        if magic & ~1 != _MAGIC or version != _FORMAT or page_bytes not in _PAGE_BYTES:
            return False
        found = checksum(self.data[:24], (0, 0), big_endian=self.big_endian)
        return found == self.sums

    def frames(self) -> Iterator[_Frame]:
        """All complete frames, of this log or of an earlier one."""
        for at in range(_HEADER_BYTES, len(self.data) - self.frame_bytes + 1, self.frame_bytes):
            head = self.data[at : at + _FRAME_HEAD_BYTES]
            page = self.data[at + _FRAME_HEAD_BYTES : at + self.frame_bytes]
            first, second = struct.unpack_from(">2I", head, 16)
            yield _Frame(head[:8] + page, head[8:16], (first, second), head[4:8] != bytes(4))

    def offset_of(self, number: int) -> int:
        return _HEADER_BYTES + number * self.frame_bytes


def check_log(file: Path, *, durable: bool = True) -> Mended | None:
    """Repairs one flipped bit of the log of the metadata file `file`, durably; returns its description.

    Call it before the file is opened. `durable`: its commits were synced. Raises CorruptDataError when
    commits are lost, and then changes nothing; OSError.
    """
    log_file = file.with_name(f"{file.name}-wal")
    data = log_file.read_bytes() if log_file.exists() else b""
    mended: Mended | None = None
    while (examined := examine(data, log_file)).damage is not None:
        mended = examined.damage
        data = _flipped(data, mended)
        with log_file.open("r+b") as out:
            out.seek(mended.offset)
            out.write(data[mended.offset : mended.offset + 1])
            out.flush()
            os.fsync(out.fileno())
        _log.error(
            "%s: bit %d of byte %d was wrong and is corrected: check the disk",
            log_file,
            mended.bit,
            mended.offset,
        )
    if durable:
        _compare(log_file, examined, file.with_name(f"{file.name}-shm"))
    return mended


def _compare(log_file: Path, examined: Examined, index_file: Path) -> None:
    """Raises CorruptDataError when the index counts frames that the log no longer has, OSError."""
    if not index_file.exists():
        return
    with index_file.open("rb") as index:
        notes = noted_in(index.read(2 * _INDEX.size + _COPIED.size))
    for note in notes:
        # Other salts belong to a log that was restarted once all of this one was in the file; no salts: no
        # log.
        if examined.salts in (note.salts, b"") and max(examined.frames, note.copied) < note.frames:
            raise CorruptDataError(str(log_file), examined.end, _LOST.format(log_file.name))


class Examined(NamedTuple):
    """The result of reading a log."""

    damage: Mended | None
    """The flipped bit that ends the log too early; None when there is none."""
    frames: int = 0
    """Number of consecutive whole frames."""
    salts: bytes = b""
    """Salts of the header; empty when the log has no valid header."""
    end: int = 0
    """Offset of the end of the last whole frame, in bytes."""


def examine(data: bytes, file: Path) -> Examined:
    """Reads a log and looks for its end.

    Raises CorruptDataError, which names `file`, when more than one bit is damaged, or when several bits
    explain the damage.
    """
    if len(data) <= _HEADER_BYTES:
        return Examined(None)
    log = _Log(data)
    if not log.header_is_good:
        return Examined(_header_damage(data, file))
    frames = list(log.frames())
    sums = log.sums
    for number, frame in enumerate(frames):
        found = checksum(frame.covered, sums, big_endian=log.big_endian)
        if frame.salts == log.salts and found == frame.stored:
            sums = found
            continue
        at = log.offset_of(number)
        bits = _flips_in(log, frames[number : number + 2], at, found)
        if len(bits) > 1 or (not bits and _is_followed(log, frames[number:])):
            raise CorruptDataError(str(file), at, _LOST.format(file.name))
        return Examined(bits[0] if bits else None, number, log.salts, at)
    return Examined(None, len(frames), log.salts, log.offset_of(len(frames)))


def _header_damage(data: bytes, file: Path) -> Mended | None:
    for bit in _bits(0, _HEADER_BYTES):
        log = _Log(_flipped(data, bit))
        # Several bits give a valid header; the first frame continues from the right sums.
        if log.header_is_good and (first := next(log.frames(), None)) and _goes_on(log, log.sums, first):
            return bit
    log = _Log(data)
    if log.frame_bytes - _FRAME_HEAD_BYTES not in _PAGE_BYTES:
        return None
    frames = list(log.frames())
    if frames:
        log.salts = frames[0].salts
        if _is_followed(log, frames):
            raise CorruptDataError(str(file), 0, _LOST.format(file.name))
    return None


def _flipped(data: bytes, bit: Mended) -> bytes:
    byte = data[bit.offset] ^ 1 << bit.bit
    return b"%b%c%b" % (data[: bit.offset], byte, data[bit.offset + 1 :])


def _bits(start: int, stop: int) -> Iterator[Mended]:
    return (Mended(offset, bit) for offset in range(start, stop) for bit in range(8))


def _flips_in(log: _Log, frames: Sequence[_Frame], at: int, found: tuple[int, int]) -> list[Mended]:
    """The bits of the first frame that may be the flipped one; empty when more than one bit is wrong.

    `frames`: the damaged frame and those after it. `at`: its offset in bytes; `found`: its sums.
    """
    frame = frames[0]
    if frame.salts != log.salts:
        # Most likely a frame of an earlier log.
        return [] if found != frame.stored else _difference(frame.salts, log.salts, at + 8)
    of_sums = _difference(struct.pack(">2I", *frame.stored), struct.pack(">2I", *found), at + 16)
    if of_sums and len(frames) > 1:
        # A bit of a word may look like a bit of a sum: the next frame continues from the right sums.
        if _goes_on(log, found, frames[1]):
            return of_sums
        of_sums = []
    return [*of_sums, *_covered_flips(log, frame, found, at)]


def _difference(one: bytes, other: bytes, at: int) -> list[Mended]:
    apart = int.from_bytes(one, "little") ^ int.from_bytes(other, "little")
    if apart.bit_count() != 1:
        return []
    place = apart.bit_length() - 1
    return [Mended(at + place // 8, place % 8)]


def _covered_flips(log: _Log, frame: _Frame, found: tuple[int, int], at: int) -> list[Mended]:
    """A change of a word by d changes the sums by d times a weight of its place, so no bit needs a new
    sum."""
    wanted = ((frame.stored[0] - found[0]) & _WORD, (frame.stored[1] - found[1]) & _WORD)
    covered = frame.covered
    order = ">" if log.big_endian else "<"
    words = struct.unpack(f"{order}{len(covered) // 4}I", covered)
    bits: list[Mended] = []
    for index, (word, to_first, to_second) in enumerate(zip(words, *_weights(len(words))[:2], strict=True)):
        for bit in range(32):
            change = -(1 << bit) if word >> bit & 1 else 1 << bit
            if ((change * to_first) & _WORD, (change * to_second) & _WORD) == wanted:
                place = 4 * index + (3 - bit // 8 if log.big_endian else bit // 8)
                # The page's number and the commit's mark, then the salts and sums, then the page.
                offset = place if place < 8 else place + _FRAME_HEAD_BYTES - 8
                bits.append(Mended(at + offset, bit % 8))
    return bits


def _one_pair_earlier(added: tuple[int, int]) -> tuple[int, int]:
    """The change of the sums after one more pair of words, when they changed by `added` before it."""
    first = (added[0] + added[1]) & _WORD
    return first, (added[1] + first) & _WORD


def _is_followed(log: _Log, frames: Sequence[_Frame]) -> bool:
    """Whether a whole commit and a frame after it follow the first of the frames, which is damaged.

    Each frame is checked from the sums stored in the one before. Frames left by a failed commit do not match:
    later commits overwrite them from the same offset, with other sums.
    """
    has_commit = frames[0].ends_commit
    for before, frame in pairwise(frames):
        if not _goes_on(log, before.stored, frame):
            has_commit = False
        elif has_commit:
            return True
        else:
            has_commit = frame.ends_commit
    return False


def _goes_on(log: _Log, sums: tuple[int, int], frame: _Frame) -> bool:
    return frame.salts == log.salts and frame.stored == checksum(
        frame.covered, sums, big_endian=log.big_endian
    )

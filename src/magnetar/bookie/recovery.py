"""Scanning a segment that has no valid footer: what of it counts, what is damage, where it ends.

Groups of blocks are written and synced one after the other, and each block says up to where the segment was
synced before its group was written (`synced_to`). So for a place that does not hold what it should:

- some good block further on has `synced_to` beyond the place: the place was synced once and is
  damaged now. It is noted and skipped; what follows is still used;
- no block has: the place belongs to the last group, whose sync never returned. Nothing in it was
  acknowledged; the log ends here, even if later blocks of that same group reached the disk.

A mark is written when the log goes idle, so that the last group is covered soon as well, and the first block
of the next segment says where this one ended.

A segment that is known to have ended has no torn block: every mismatch is damage. Nor is a block that reaches
beyond the file: a file is as long from the start as it may become.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from magnetar.base.ids import NO_LEDGER
from magnetar.bookie.blocks import (
    HEADER_BYTES,
    MAGIC,
    SALT_AT,
    BlockHeader,
    BlockKind,
    body_is_good,
    decode_header,
    decode_start,
    good_blocks,
)
from magnetar.bookie.files import SEARCH_BYTES
from magnetar.bookie.index import UNKNOWN_OWNER, Damage, SegmentIndex
from magnetar.bookie.segment import DATA_OFFSET

WINDOW_BYTES: Final = 4 << 20
"""Bytes per read: bounds the memory of a scan."""

_ZEROS: Final = bytes(SEARCH_BYTES)
# Looking up a member of an Enum costs as much as checking a small block.
_ENTRIES: Final = int(BlockKind.ENTRIES)
_START: Final = int(BlockKind.START)
_TOMBSTONE: Final = int(BlockKind.TOMBSTONE)

Read = Callable[[int, int], bytes]
"""`read(offset, length)`: that many bytes, fewer only at the end of the file."""

NextData = Callable[[int], int | None]
"""`next_data(offset)`: the first offset from there on outside a hole; None when only holes follow."""


class SegmentBytes(NamedTuple):
    """The bytes of a segment's file."""

    size: int
    """Up to where it is read."""
    read: Read
    next_data: NextData
    search: Read | None = None
    """`read` for bytes that are searched once, at most SEARCH_BYTES at a time; None: `read`."""


class Scan(NamedTuple):
    """The content of a segment without a footer."""

    found: SegmentIndex
    end: int
    """End of the log; everything after it is to be cut off."""
    torn_bytes: int
    """Bytes of an unfinished group after `end`; 0 when the end is clean."""
    previous: tuple[int, int] | None
    """Id and end of the previous segment, from the START block; None without one."""


class _Item(NamedTuple):
    offset: int
    size: int
    header: BlockHeader | None
    good: bool


class _Window:
    """A buffered view of the file."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._start = 0
        self._bytes = b""

    def get(self, offset: int, length: int) -> bytes:
        """The bytes, fewer at the end of the file."""
        at = offset - self._start
        if at < 0 or at + length > len(self._bytes):
            self._bytes = self._read(offset, max(length, WINDOW_BYTES))
            self._start, at = offset, 0
        return self._bytes[at : at + length]


def scan_segment(
    segment_id: int,
    salt: int,
    file: SegmentBytes,
    synced_end: int = 0,
    *,
    synced_to: int = 0,
    ended: bool = False,
) -> Scan:
    """Reads a segment block by block.

    `synced_end`: the end of the log according to the next segment or the trailer; 0 when neither says so.
    `synced_to`: the log was synced at least up to there. `ended`: no block of it was being written, so
    nothing is torn.
    """
    file_bytes = file.size
    window = _Window(file.read)
    index = SegmentIndex(segment_id)
    # Nearly always there is no bad place, and only the index is built.
    end, previous = _admit_good(window, index, salt, min(synced_end or file_bytes, file_bytes))
    walk = _Walk(window, salt, file_bytes, _Search(file.next_data, file.search or file.read), end)
    items = list(walk)
    checkpoint = max(synced_to, synced_end)
    synced_to = max((item.header.synced_to for item in items if item.header is not None), default=0)
    synced_to = file_bytes if ended else max(synced_to, checkpoint)
    torn_bytes = 0
    for item in items:
        if synced_end and item.offset >= synced_end:
            # Left by a group whose write failed: its writers were told, and the log continued in the next
            # segment.
            torn_bytes = items[-1].offset + items[-1].size - item.offset
            break
        if item.good:
            assert item.header is not None
            _admit(index, item.header)
        elif item.offset < synced_to or item.offset + item.size > file_bytes:
            index.damages += _damages(item, items)
        else:
            torn_bytes = items[-1].offset + items[-1].size - item.offset
            break
        end = min(item.offset + item.size, file_bytes)
    if end < checkpoint:
        index.damages.append(Damage(end, checkpoint - end, UNKNOWN_OWNER, -1, -1))
        end = checkpoint
    if not torn_bytes and not ended and end < file_bytes:
        # A torn header is not an item; the length of its body does not matter.
        left = window.get(end, min(HEADER_BYTES, file_bytes - end)).rstrip(b"\0")
        if _begins_header(left, salt):
            torn_bytes = len(left)
    return Scan(index, end, torn_bytes, previous or walk.previous)


def _admit_good(
    window: _Window, index: SegmentIndex, salt: int, stop: int
) -> tuple[int, tuple[int, int] | None]:
    """Admits blocks up to the first place without a good block, or to `stop`.

    Returns that place, and the content of a START block. The same result as `_Walk`, in a fraction of the
    time: a start after a crash waits for this.
    """
    previous: tuple[int, int] | None = None
    offset = DATA_OFFSET
    wanted = WINDOW_BYTES
    while offset + HEADER_BYTES <= stop:
        buffer = window.get(offset, wanted)
        found, size = good_blocks(buffer, salt, offset, stop)
        if not size:
            header = decode_header(buffer, 0, salt, offset)
            if header is None or header.size <= len(buffer) or len(buffer) < wanted:
                break
            wanted = header.size
            continue
        for kind, ledger_id, first, at, block_bytes, count, data_bytes in found:
            if kind == _ENTRIES:
                index.rows(ledger_id).append(first, at, block_bytes, count, data_bytes)
            elif kind == _TOMBSTONE:
                index.tombstones.append(ledger_id)
            elif kind == _START:
                body = at - offset + HEADER_BYTES
                previous = decode_start(buffer[body : body + block_bytes - HEADER_BYTES])
        index.block_count += len(found)
        offset += size
        wanted = WINDOW_BYTES
    return offset, previous


class _Search(NamedTuple):
    """How to search for the next block after a place without one."""

    next_data: NextData
    read: Read


class _Walk:
    """Every block with an intact header, and the gaps between them, in the order of the file."""

    def __init__(
        self, window: _Window, salt: int, file_bytes: int, search: _Search, start: int = DATA_OFFSET
    ) -> None:
        self._window = window
        self._salt = salt
        self._file_bytes = file_bytes
        self._search = search
        self._start = start
        self._items = self._walk()
        self.previous: tuple[int, int] | None = None
        """The content of the START block, once it was passed."""

    def __iter__(self) -> Iterator[_Item]:
        return self._items

    def _walk(self) -> Iterator[_Item]:
        window, salt = self._window, self._salt
        offset = self._start
        while offset + HEADER_BYTES <= self._file_bytes:
            header = decode_header(window.get(offset, HEADER_BYTES), 0, salt, offset)
            if header is None:
                found = _resync(window, salt, offset, self._file_bytes, self._search)
                if found is None:
                    return
                yield _Item(offset, found - offset, None, good=False)
                offset = found
                continue
            length = header.body_length
            body = window.get(offset + HEADER_BYTES, length)
            good = body_is_good(header, body)
            if good and header.kind == _START:
                self.previous = decode_start(body)
            size = HEADER_BYTES + length
            yield _Item(offset, size, header, good)
            offset += size


def _begins_header(buffer: bytes, salt: int) -> bool:
    """Whether `buffer`, which may be cut anywhere, begins like a block header of this segment."""
    theirs = salt.to_bytes(8, "little")
    found = buffer[SALT_AT : SALT_AT + len(theirs)]
    return bool(buffer) and MAGIC.startswith(buffer[: len(MAGIC)]) and theirs.startswith(found)


def _resync(window: _Window, salt: int, offset: int, file_bytes: int, search: _Search) -> int | None:
    """The next offset from `offset` on with an intact header."""
    # Not the magic: a file that was used before may hold tens of thousands of old ones.
    wanted = salt.to_bytes(8, "little")
    at: int | None = offset + 1
    while at is not None and at + HEADER_BYTES <= file_bytes:
        at = search.next_data(at)
        if at is None:
            return None
        buffer = search.read(at, SEARCH_BYTES)
        # Comparing is ten times faster than searching, and most of the bytes are zeros.
        found = -1 if buffer == _ZEROS else buffer.find(wanted, SALT_AT)
        while found >= 0:
            start = found - SALT_AT
            head = buffer[start : start + HEADER_BYTES]
            if len(head) < HEADER_BYTES:
                head = window.get(at + start, HEADER_BYTES)
            if decode_header(head, 0, salt, at + start) is not None:
                return at + start
            found = buffer.find(wanted, found + 1)
        if len(buffer) < SEARCH_BYTES:
            return None
        # A header may cross the border of two windows.
        at += len(buffer) - SALT_AT - len(wanted) + 1
    return None


def _admit(index: SegmentIndex, header: BlockHeader) -> None:
    index.block_count += 1
    if header.kind == _ENTRIES:
        rows = index.rows(header.ledger_id)
        rows.append(header.first_entry, header.offset, header.size, header.entry_count, header.data_bytes)
    elif header.kind == BlockKind.TOMBSTONE:
        index.tombstones.append(header.ledger_id)


def _damages(item: _Item, items: list[_Item]) -> list[Damage]:
    """The lost bytes and their ledgers, as far as they can be determined."""
    header = item.header
    if header is not None:
        if header.kind != BlockKind.ENTRIES:
            return [Damage(item.offset, item.size, NO_LEDGER, -1, -1)]
        return [Damage(item.offset, item.size, header.ledger_id, header.first_entry, header.last_entry)]
    follower = next(
        (other.header for other in items if other.offset == item.offset + item.size and other.header), None
    )
    if follower is None or follower.previous_offset < item.offset:
        return [Damage(item.offset, item.size, UNKNOWN_OWNER, -1, -1)]
    named = Damage(
        follower.previous_offset,
        item.offset + item.size - follower.previous_offset,
        follower.previous_ledger,
        -1,
        follower.previous_last,
    )
    if named.offset == item.offset:
        return [named]
    return [Damage(item.offset, named.offset - item.offset, UNKNOWN_OWNER, -1, -1), named]

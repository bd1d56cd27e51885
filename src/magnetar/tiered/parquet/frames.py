"""Frames between broker and worker, and entry runs as bytes. Sans-IO, used by both sides.

    size u32 | kind u8 | body of `size` bytes

The broker sends one request, then answers the worker's questions until the worker sends the result. At any
time one side waits for the other, so no queue can grow.

| Kind | From | Body |
|---|---|---|
| CONVERT, ENTRIES, POSITION, LOOKUP, VERIFY, AHEAD, MERGE_KEYS, FIND_KEY | broker | a request, JSON |
| ALIKE, MERGE, VERIFY_MERGED | broker | a request, JSON |
| WANT_RUNS | worker | nothing; answered by RUNS, END, or ABORT |
| WANT_BYTES | worker | offset u64, length u64; answered by BYTES or ABORT |
| RUNS | both | entry runs |
| RUNS_PUT | both | size u64: bytes of entry runs that were put into the shared memory (`handover.py`) |
| END, ABORT | broker | nothing |
| BYTES | broker | the bytes |
| RESULT | worker | JSON |
| FAILED | worker | JSON: kind and message of the error |

    Runs: count u32, then of each run
    ledger u64 | first entry u64 | base index i64 | broker time i64 | entries u32 | has counts u32
    sizes u32 * entries | counts u32 * entries, if there are any | the entries

Numbers are in the byte order of the machine: both sides run on it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import accumulate
from mmap import mmap
from typing import Final

from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId

HEAD: Final = struct.Struct("=IB")
RANGE: Final = struct.Struct("=QQ")
SIZE: Final = struct.Struct("=Q")
_COUNT: Final = struct.Struct("=I")
_RUN: Final = struct.Struct("=QQqqII")

FRAME_BYTES_MAX: Final = (1 << 32) - 1


class FrameKind(IntEnum):
    """Kinds of frames."""

    CONVERT = 1
    ENTRIES = 2
    POSITION = 3
    LOOKUP = 4
    VERIFY = 5
    AHEAD = 6
    MERGE_KEYS = 7
    FIND_KEY = 8
    MERGE = 9
    VERIFY_MERGED = 10
    ALIKE = 11
    WANT_RUNS = 16
    WANT_BYTES = 17
    RUNS = 18
    END = 19
    ABORT = 20
    BYTES = 21
    RESULT = 22
    FAILED = 23
    RUNS_PUT = 24


def runs_parts(runs: Sequence[EntryRun]) -> list[bytes]:
    """The parts of the body of a RUNS frame, in order."""
    parts: list[bytes] = [count_part(len(runs))]
    for run in runs:
        entries, counts = run.entries, run.counts
        parts.append(
            head_part(
                run.ledger_id,
                run.first_entry,
                run.base_index,
                run.broker_time_ms,
                len(entries),
                has_counts=counts is not None,
            )
        )
        parts.append(array("I", map(len, entries)).tobytes())
        if counts is not None:
            parts.append(array("I", counts).tobytes())
        parts += entries
    return parts


def count_part(runs: int) -> bytes:
    """The first part of a body: the number of runs."""
    return _COUNT.pack(runs)


def head_part(
    ledger_id: LedgerId, first_entry: int, base_index: int, time_ms: int, entries: int, *, has_counts: bool
) -> bytes:
    """The first part of a run. Sizes, counts if there are any, and entries follow."""
    return _RUN.pack(ledger_id, first_entry, base_index, time_ms, entries, has_counts)


def decode_runs(body: bytes | mmap, size: int | None = None) -> list[EntryRun]:
    """The runs in the first `size` bytes of a body; None: the whole body.

    Raises struct.error or ValueError for other bytes; the other side is our code, so that is a bug.
    """
    return list(iterate_runs(body, len(body) if size is None else size))


def iterate_runs(body: bytes | mmap, size: int) -> Iterator[EntryRun]:
    """As `decode_runs`, but copies the entries of a run only when it is yielded."""
    at = _COUNT.size
    for _ in range(_COUNT.unpack_from(body)[0]):
        ledger_id, first_entry, base_index, time_ms, entries, has_counts = _RUN.unpack_from(body, at)
        at += _RUN.size
        sizes = _numbers(body, at, entries)
        at += 4 * entries
        counts = None
        if has_counts:
            counts = _numbers(body, at, entries)
            at += 4 * entries
        ends = list(accumulate(sizes, initial=at))
        parts = list(map(body.__getitem__, map(slice, ends, ends[1:])))
        at = ends[-1]
        yield EntryRun(ledger_id, first_entry, parts, counts, base_index, time_ms)
    if at != size:
        raise ValueError(f"runs of {at} bytes in a frame of {size}")


def _numbers(body: bytes | mmap, at: int, count: int) -> list[int]:
    numbers = array("I")
    numbers.frombytes(body[at : at + 4 * count])
    return numbers.tolist()

"""Which entries of a ledger a bookie holds, as GET_LIST_OF_ENTRIES_OF_LEDGER carries them.

    version i32 = 0 | groups i32 | 56 zero bytes
    group    first start i64 | last start i64 | size i32 | period i32

A sequence is a run of entries without a gap. A group is sequences of one size whose starts lie one period
apart; its period is 0 when it has one sequence. Striping makes such patterns: a bookie of an ensemble lacks
the same places of every round.

Source: BookKeeper protocol, availability of entries of a ledger.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from magnetar.base.errors import ProtocolError

_HEAD: Final = struct.Struct(">ii56x")
_GROUP: Final = struct.Struct(">qqii")
_VERSION: Final = 0
_SIZE_MAX: Final = (1 << 31) - 1
"""Longest sequence that a group can name; a longer one becomes several."""

_ENTRY_MAX: Final = (1 << 63) - 1


def encode_entries(runs: Iterable[range]) -> bytes:
    """The encoded list of these runs: ascending, separate, step 1, none empty."""
    groups: list[tuple[int, int, int, int]] = []
    for run in runs:
        start = run.start
        while start < run.stop:
            size = min(run.stop - start, _SIZE_MAX)
            _add(groups, start, size)
            start += size
    return _HEAD.pack(_VERSION, len(groups)) + b"".join(_GROUP.pack(*group) for group in groups)


def _add(groups: list[tuple[int, int, int, int]], start: int, size: int) -> None:
    if groups:
        first, last, size_before, period = groups[-1]
        distance = start - last
        if size == size_before and distance <= _SIZE_MAX and period in (0, distance):
            groups[-1] = (first, start, size, distance)
            return
    groups.append((start, start, size, 0))


def decode_entries(data: bytes) -> Iterator[range]:
    """Yields the runs of a list in its order. Raises ProtocolError when the list is damaged, before the first
    run.

    A generator, because a few bytes can stand for very many runs.
    """
    if len(data) < _HEAD.size:
        raise ProtocolError(f"a list of entries of {len(data)} bytes, its head alone has {_HEAD.size}")
    version, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ProtocolError(f"list of entries in version {version}, known is {_VERSION}")
    stop = _HEAD.size + count * _GROUP.size
    if count < 0 or len(data) < stop:
        raise ProtocolError(f"a list of entries of {len(data)} bytes cannot hold {count} groups")
    groups = list(_GROUP.iter_unpack(data[_HEAD.size : stop]))
    for group in groups:
        if not _is_sound(*group):
            raise ProtocolError(f"damaged group in a list of entries: {group}")
    return (
        range(start, start + size)
        for first, last, size, period in groups
        for start in range(first, last + 1, period or 1)
    )


def _is_sound(first: int, last: int, size: int, period: int) -> bool:
    if first < 0 or size <= 0 or last + size > _ENTRY_MAX:
        return False
    if period == 0:
        return first == last
    return size <= period and first < last and (last - first) % period == 0

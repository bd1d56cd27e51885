"""Plans reads of blocks, and cuts the requested entries out of them."""

from __future__ import annotations

from typing import Final, NamedTuple

from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId
from magnetar.bookie.blocks import HEADER_BYTES, body_is_good, decode_entries, decode_header
from magnetar.bookie.index import BlockPlace

GAP_BYTES_MAX: Final = 64 << 10
"""Foreign blocks of up to this many bytes between two wanted ones are read along: cheaper than another
read."""
READ_BYTES_MAX: Final = 4 << 20
"""Bytes of one read; a single larger block is read whole."""


class Extent(NamedTuple):
    """A range of one segment that is read at once, and the wanted blocks in it."""

    segment_id: int
    offset: int
    length: int
    places: list[BlockPlace]


def plan(places: list[BlockPlace]) -> list[Extent]:
    """Groups blocks that lie close together."""
    extents: list[Extent] = []
    for place in places:
        end = place.offset + place.size
        if extents:
            segment_id, offset, length, chosen = extents[-1]
            if (
                segment_id == place.segment_id
                and 0 <= place.offset - offset - length <= GAP_BYTES_MAX
                and end - offset <= READ_BYTES_MAX
            ):
                chosen.append(place)
                extents[-1] = Extent(segment_id, offset, end - offset, chosen)
                continue
        extents.append(Extent(place.segment_id, place.offset, place.size, [place]))
    return extents


class BadBlock(NamedTuple):
    """A block whose content is not what the index says."""

    place: BlockPlace
    detail: str


def decode(
    extent: Extent, data: bytes, ledger_id: LedgerId, salt: int
) -> tuple[list[EntryRun], BadBlock | None]:
    """The runs of the extent's blocks, up to the first bad one."""
    runs: list[EntryRun] = []
    for place in extent.places:
        at = place.offset - extent.offset
        header = decode_header(data, at, salt, place.offset)
        if header is None:
            return runs, BadBlock(place, "the block's header does not match its checksum")
        if (header.ledger_id, header.first_entry, header.entry_count, header.size) != (
            ledger_id,
            place.first_entry,
            place.entry_count,
            place.size,
        ):
            return runs, BadBlock(place, "the index and the block disagree")
        body = data[at + HEADER_BYTES : at + place.size]
        if not body_is_good(header, body):
            return runs, BadBlock(place, "the entries do not match their checksum")
        runs.append(decode_entries(header, body))
    return runs, None


def trim(runs: list[EntryRun], first: int, last: int, bytes_max: int) -> list[EntryRun]:
    """The entries `first..last` of consecutive runs, as many as fit `bytes_max`, at least one."""
    trimmed: list[EntryRun] = []
    room = bytes_max
    for whole in runs:
        start = max(first - whole.first_entry, 0)
        stop = min(last - whole.first_entry + 1, len(whole.entries))
        if start >= stop:
            continue
        run = whole.slice(start, stop)
        size = run.size_bytes
        if size <= room:
            trimmed.append(run)
            room -= size
            continue
        fitting = 0
        for entry in run.entries:
            if len(entry) > room:
                break
            room -= len(entry)
            fitting += 1
        if fitting == 0 and not trimmed:
            fitting = 1
        if fitting:
            trimmed.append(run.slice(0, fitting))
        break
    return trimmed

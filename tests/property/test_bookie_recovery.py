"""Random logs, cut or damaged at random, against a plain model of what must be found."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.bookie.blocks import Block, mark_block
from support.segment_images import Image, entries, former_life, found

# A group: (ledger, entry sizes) per block; None is a mark.
groups = st.lists(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, 60), min_size=1, max_size=4)) | st.none(),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=6,
)

# A new file is empty, a recycled one full of blocks of its former life.
formers = st.sampled_from([b"", former_life()])


def build(shape: list[list[tuple[int, list[int]] | None]], former: bytes) -> tuple[Image, list[int]]:
    """The log, over what the file held before, and where its groups begin."""
    image = Image(former=former)
    following: dict[int, int] = {}
    starts = []
    for group in shape:
        blocks: list[Block] = []
        for part in group:
            if part is None:
                blocks.append(mark_block())
                continue
            ledger_id, sizes = part
            first = following.get(ledger_id, 0)
            blocks.append(entries(ledger_id, first, *(bytes([65 + first % 26]) * size for size in sizes)))
            following[ledger_id] = first + len(sizes)
        starts.append(image.write(*blocks))
    return image, starts


def expected(image: Image, lost: set[int], end: int) -> dict[int, list[tuple[int, int]]]:
    """Blocks of entries before `end` that are not at an offset in `lost`."""
    result: dict[int, list[tuple[int, int]]] = {}
    for block, offset in image.places:
        if block.entry_count and offset < end and offset not in lost:
            result.setdefault(block.ledger_id, []).append((block.first_entry, block.last_entry))
    return result


@given(groups, formers, st.data())
@settings(max_examples=200, deadline=None)
def test_a_cut_log_keeps_every_block_before_the_cut(
    shape: list[list[tuple[int, list[int]] | None]], former: bytes, data: st.DataObject
) -> None:
    image, starts = build(shape, former)
    cut = data.draw(st.integers(starts[-1], image.end))
    scan = image.scan(bytes(image.bytes[:cut]) + image.former[cut:])
    whole = [offset + block.size for block, offset in image.places if offset + block.size <= cut]
    # A block may end in what was there before; then it is whole though the cut went through it.
    end = max([scan.end, *whole])
    assert scan.end == end
    assert scan.found.damages == []
    assert found(scan) == expected(image, set(), end)
    scan.found.check()


@given(groups, formers, st.data())
@settings(max_examples=200, deadline=None)
def test_damage_in_synced_groups_is_found_and_costs_nothing_else(
    shape: list[list[tuple[int, list[int]] | None]], former: bytes, data: st.DataObject
) -> None:
    image, starts = build([*shape, [None]], former)
    block, offset = data.draw(st.sampled_from([p for p in image.places if p[1] < starts[-1]]))
    at = data.draw(st.integers(offset, offset + block.size - 1))
    damaged = bytearray(image.bytes)
    damaged[at] ^= data.draw(st.integers(1, 255))
    scan = image.scan(bytes(damaged))
    assert found(scan) == expected(image, {offset}, image.end)
    (damage,) = scan.found.damages
    assert (damage.offset, damage.length) == (offset, block.size)
    assert damage.ledger_id == block.ledger_id
    if block.entry_count:
        assert damage.last_entry == block.last_entry
    assert scan.end == image.end


@given(groups, formers, st.data())
@settings(max_examples=200, deadline=None)
def test_the_last_group_may_reach_the_disk_in_any_part(
    shape: list[list[tuple[int, list[int]] | None]], former: bytes, data: st.DataObject
) -> None:
    """Each sector of the last group is there or is not: nothing before it is lost, nothing false is found."""
    image, starts = build(shape, former)
    sector = 64
    torn = bytearray(image.bytes)
    for at in range(starts[-1], image.end, sector):
        if data.draw(st.booleans()):
            stop = min(at + sector, image.end)
            torn[at:stop] = image.former[at:stop]
    scan = image.scan(bytes(torn))
    assert scan.found.damages == []
    assert scan.end >= starts[-1]
    assert found(scan) == expected(image, set(), scan.end)

"""Reads Avro unions, arrays and maps at many places at once.

The items of arrays are read by number: the first item of all arrays, then the second of those that have one,
and so on; they are sorted at the end.

Source: Apache Avro 1.12 specification, "Binary encoding".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from magnetar.arrow.avro_leaves import Read, read_leaf, zigzags
from magnetar.arrow.avro_types import AvroNode
from magnetar.arrow.fields import Bytes, Ints
from magnetar.client.errors import PayloadError

_ITEMS_MAX: Final = 1 << 24
"""Most items of one block of an array; a higher count means that the value is damaged."""


def in_order(reads: list[Read]) -> Read:
    """Skips several types one after the other."""

    def skip(data: Bytes, at: Ints) -> tuple[object, Ints]:
        for read in reads:
            _, at = read(data, at)
        return None, at

    return skip


def nulls(target: pa.DataType) -> Read:
    """Reads null, which takes no bytes."""
    return lambda data, at: (pa.nulls(len(at), target), at)


def branches(reads: list[Read], target: pa.DataType | None) -> Read:
    """Reads a union branch by branch; with `target` None it skips them."""

    def read(data: Bytes, at: Ints) -> tuple[object, Ints]:
        numbers, behind = zigzags(data, at)
        used: list[int] = np.unique(numbers).tolist()
        if used and not 0 <= used[0] <= used[-1] < len(reads):
            raise PayloadError("an Avro union has no such branch")
        if len(used) == 1:
            return reads[used[0]](data, behind)
        parts, rows = [], []
        at = behind.copy()
        for number in used:
            chosen = np.flatnonzero(numbers == number)
            values, at[chosen] = reads[number](data, behind[chosen])
            parts.append(values)
            rows.append(chosen)
        if target is None:
            return None, at
        if not parts:
            return pa.nulls(0, target), at
        order = np.argsort(np.concatenate(rows), kind="stable")
        return pa.concat_arrays(parts).take(pa.array(order)), at

    return read


def _items(data: Bytes, at: Ints, read: Callable[[Bytes, Ints, Ints, Ints], Ints]) -> tuple[Ints, Ints]:
    """Reads the blocks of arrays. `read` gets data, offsets, rows and numbers of items, and returns the
    offsets after them. Returns the number of items of each row and the offsets after all. Raises
    PayloadError."""
    counts = np.zeros(len(at), np.int64)
    at = at.copy()
    active = np.arange(len(at))
    while len(active):
        block, behind = zigzags(data, at[active])
        sized = np.flatnonzero(block < 0)
        if len(sized):
            _, behind[sized] = zigzags(data, behind[sized])
            block = np.abs(block)
        at[active] = behind
        active, block = active[block > 0], block[block > 0]
        if len(block) and int(block.max()) > _ITEMS_MAX:
            raise PayloadError(f"an Avro array says that it has {int(block.max())} items")
        for number in range(int(block.max()) if len(block) else 0):
            rows = active[block > number]
            at[rows] = read(data, at[rows], rows, counts[rows] + number)
            if int(at[rows].max()) > len(data):
                raise PayloadError("an Avro array is cut off")
        counts[active] += block
    return counts, at


def _gathered(read: Read, type_: pa.DataType) -> Callable[[Bytes, Ints], tuple[pa.Array, pa.Array, Ints]]:
    """A function that returns the items of arrays in the order of their rows, with Arrow's offsets."""

    def gather(data: Bytes, at: Ints) -> tuple[pa.Array, pa.Array, Ints]:
        parts, owners, numbers = [], [], []

        def take(data: Bytes, places: Ints, rows: Ints, number: Ints) -> Ints:
            values, behind = read(data, places)
            parts.append(values)
            owners.append(rows)
            numbers.append(number)
            return behind

        counts, at = _items(data, at, take)
        offsets = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        if not parts:
            return pa.array(offsets), pa.nulls(0, type_), at
        order = np.lexsort((np.concatenate(numbers), np.concatenate(owners)))
        return pa.array(offsets), pa.concat_arrays(parts).take(pa.array(order)), at

    return gather


def lists(item: Read, target: pa.DataType) -> Read:
    """Reads an array as the list type `target`."""
    gather = _gathered(item, target.value_type)

    def read(data: Bytes, at: Ints) -> tuple[object, Ints]:
        offsets, items, at = gather(data, at)
        return pa.ListArray.from_arrays(offsets, items, type=target), at

    return read


def maps(value: Read, target: pa.DataType) -> Read:
    """Reads a map as the map type `target`."""
    pair = pa.struct([pa.field("key", pa.string()), pa.field("value", target.item_type)])
    key = read_leaf(AvroNode("string"), pa.string())

    def both(data: Bytes, at: Ints) -> tuple[object, Ints]:
        keys, at = key(data, at)
        values, at = value(data, at)
        return pa.StructArray.from_arrays([keys, values], fields=list(pair)), at

    gather = _gathered(both, pair)

    def read(data: Bytes, at: Ints) -> tuple[object, Ints]:
        offsets, pairs, at = gather(data, at)
        return pa.MapArray.from_arrays(offsets, pairs.field(0), pairs.field(1)).cast(target), at

    return read


def skip_items(item: Read) -> Read:
    """Skips all items of an array; for a map, `item` skips a pair."""

    def skip(data: Bytes, at: Ints) -> tuple[object, Ints]:
        return None, _items(data, at, lambda data, places, rows, number: item(data, places)[1])[1]

    return skip

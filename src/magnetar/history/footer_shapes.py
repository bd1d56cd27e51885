"""The records of a Parquet footer that readers of history need, as shapes of `compact.py` (pure).

What is not named here is left out when a footer is written again: statistics of sizes and places, bloom
filters, order of rows, and all that later versions add. Readers of history use none of it, and some of it
ends pyarrow's process when it is damaged.

Source: apache/parquet-format, parquet.thrift.
"""

from __future__ import annotations

from typing import Final

from magnetar.history.compact import Flag, Listing, Octet, Octets, Struct, Whole

BYTES_MAX: Final = 256 << 20
"""Bytes of a footer."""
NESTED_MAX: Final = 128
"""Columns within each other: readers walk down them with a stack."""
LEAVES_MAX: Final = 50_000
ROWS_MAX: Final = 1 << 48
_OFFSET_MAX: Final = (1 << 62) - 1
_GROUPS_MAX: Final = 1 << 20

_BYTES: Final = Octets(BYTES_MAX)
_TEXT: Final = Octets(BYTES_MAX, text=True)
_COUNT: Final = Whole(6, 0, _OFFSET_MAX)
_EMPTY: Final = Struct({})
_TIME: Final = Struct({1: Flag(), 2: Struct({1: _EMPTY, 2: _EMPTY, 3: _EMPTY})}, frozenset((1, 2)))

LOGICAL: Final = Struct(
    {
        1: _EMPTY,  # text
        2: _EMPTY,  # map
        3: _EMPTY,  # list
        4: _EMPTY,  # enum
        5: Struct({1: Whole(5, 0, 76), 2: Whole(5, 1, 76)}, frozenset((1, 2))),  # decimal
        6: _EMPTY,  # date
        7: _TIME,
        8: _TIME,  # timestamp
        10: Struct({1: Octet(), 2: Flag()}, frozenset((1, 2))),  # whole number
        11: _EMPTY,  # always null
        12: _EMPTY,  # JSON
        14: _EMPTY,  # UUID
        15: _EMPTY,  # half a float
    }
)

TYPE, LENGTH, REPETITION, NAME, CHILDREN = 1, 2, 3, 4, 5
ELEMENT: Final = Struct(
    {
        TYPE: Whole(5, 0, 7),
        LENGTH: Whole(5, 0, 1 << 20),
        REPETITION: Whole(5, 0, 2),
        NAME: _TEXT,
        CHILDREN: Whole(5, 0, LEAVES_MAX),
        6: Whole(5, 0, 21),  # the former kind of type
        7: Whole(5, 0, 76),  # scale
        8: Whole(5, 0, 76),  # precision
        9: Whole(5, -(1 << 31), (1 << 31) - 1),  # id
        10: LOGICAL,
    },
    frozenset((NAME,)),
)

NULLS, DISTINCT, LARGEST, SMALLEST = 3, 4, 5, 6
STATISTICS: Final = Struct(
    {NULLS: _COUNT, DISTINCT: _COUNT, LARGEST: _BYTES, SMALLEST: _BYTES, 7: Flag(), 8: Flag()}
)

LEAF_TYPE, ENCODINGS, PATH, CODEC, VALUES, PLAIN_BYTES, BYTES = 1, 2, 3, 4, 5, 6, 7
DATA_AT, DICTIONARY_AT, CHUNK_STATISTICS = 9, 11, 12
CHUNK: Final = Struct(
    {
        LEAF_TYPE: Whole(5, 0, 7),
        ENCODINGS: Listing(Whole(5, 0, 9), 16),
        PATH: Listing(_TEXT, NESTED_MAX),
        CODEC: Whole(5, 0, 7),
        VALUES: _COUNT,
        PLAIN_BYTES: _COUNT,
        BYTES: _COUNT,
        DATA_AT: _COUNT,
        DICTIONARY_AT: _COUNT,
        CHUNK_STATISTICS: STATISTICS,
        13: Listing(
            Struct({1: Whole(5, 0, 3), 2: Whole(5, 0, 9), 3: Whole(5, 0, 1 << 30)}, frozenset((1, 2, 3))), 64
        ),
    },
    frozenset((LEAF_TYPE, ENCODINGS, PATH, CODEC, VALUES, PLAIN_BYTES, BYTES, DATA_AT)),
)

META: Final = 3
COLUMN: Final = Struct(
    {2: Whole(6, -_OFFSET_MAX, _OFFSET_MAX), META: CHUNK},
    frozenset((2, META)),
    {1: "a column lies in another file", 8: "a column is encrypted", 9: "a column is encrypted"},
)

COLUMNS, GROUP_BYTES, GROUP_ROWS = 1, 2, 3
GROUP: Final = Struct(
    {COLUMNS: Listing(COLUMN, LEAVES_MAX), GROUP_BYTES: _COUNT, GROUP_ROWS: Whole(6, 0, ROWS_MAX)},
    frozenset((COLUMNS, GROUP_BYTES, GROUP_ROWS)),
)

KEY, KEPT = 1, 2
VERSION, ELEMENTS, ROWS, GROUPS, KEPT_VALUES, WRITER, ORDERS = 1, 2, 3, 4, 5, 6, 7
FOOTER: Final = Struct(
    {
        VERSION: Whole(5, 1, 2),
        ELEMENTS: Listing(ELEMENT, LEAVES_MAX),
        ROWS: Whole(6, 0, ROWS_MAX),
        GROUPS: Listing(GROUP, _GROUPS_MAX),
        KEPT_VALUES: Listing(Struct({KEY: _TEXT, KEPT: _BYTES}, frozenset((KEY,))), 4_096),
        WRITER: Octets(256, text=True),
        ORDERS: Listing(Struct({1: _EMPTY}, frozenset((1,))), LEAVES_MAX),
    },
    frozenset((VERSION, ELEMENTS, ROWS, GROUPS)),
    {8: "it is encrypted"},
)

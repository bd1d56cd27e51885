"""Names of tables: `tenant__namespace` . `topic`, with unusual characters escaped.

There are two levels, because Glue, Hive and most engines support no more. Letters, digits, `-` and single `_`
are kept; every other character becomes `_xHHHH_` with its code point in hex, as SQL/XML escapes identifiers
(ISO/IEC 9075-14, 9.1). An underscore that could be read as an escape or as the separator is escaped too, so
that two topics never have the same name, and the topic can be computed from the name:

    public/default, orders              public__default.orders
    public/default, my.topic            public__default.my_x002e_topic
    a_b/c, x__y                         a_b__c.x__x005f_y

Names longer than catalogs allow end with a hash; the table's property `magnetar.topic` has the full name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from magnetar.base.names import TopicName

PART_CHARS_MAX: Final = 120
"""Most characters of one part; Hive and Glue allow 128 for a table, 255 for a namespace of two parts."""
_HASH_CHARS: Final = 16
_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-")


@dataclass(frozen=True, slots=True)
class TableName:
    """Namespace and name of a topic's table in the catalog."""

    namespace: str
    table: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.table}"


def table_name(topic: TopicName) -> TableName:
    """The table of a topic, the same for all of its partitions."""
    base = topic.base
    return TableName(f"{escape(base.tenant)}__{escape(base.namespace)}", escape(base.local))


def escape(part: str) -> str:
    """A part of a name in the form that catalogs and SQL allow. Different parts give different names, except
    hashed ones."""
    made = []
    for at, char in enumerate(part):
        if char in _PLAIN or (char == "_" and _is_plain_underscore(part, at)):
            made.append(char)
        else:
            made.append(f"_x{ord(char):04x}_")
    text = "".join(made)
    if len(text) <= PART_CHARS_MAX:
        return text
    digest = hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    # `_h` never follows from escaping: a plain underscore before an `h` that ends in 16 digits could, and
    # then the property of the table tells the two apart.
    return f"{text[: PART_CHARS_MAX - _HASH_CHARS - 2].rstrip('_')}_h{digest}"


def _is_plain_underscore(part: str, at: int) -> bool:
    """Whether the underscore cannot be read as an escape or separator."""
    if at in (0, len(part) - 1):
        return False
    return part[at - 1] in _PLAIN and part[at + 1] in _PLAIN and part[at + 1] != "x"

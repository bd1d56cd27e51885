"""The columns of a topic as a table, in order. Names and types are a promise to users.

| Column | Type | Meaning |
|---|---|---|
| value | binary | the payload; null when the message says that it has none |
| key | binary | partition key; null without one |
| key_is_string | boolean | false when the producer gave the key as bytes; null without a key |
| topic | string | full name, without the partition's suffix |
| partition | int | -1 when the topic is not partitioned |
| message_id | string | `ledger:entry:partition:batch index`, -1 where there is none |
| entry_index | bigint | number of the message in its partition, from 0; null when the broker keeps none |
| publish_time | timestamp | producer's clock |
| event_time | timestamp | set by the application; null when not |
| properties | map<string,string> | never null |
| producer_name | string | |
| sequence_id | bigint | producer's number of the message |
| ordering_key | binary | null without one |
| schema_version | binary | version the producer wrote with; null without a schema |
| redelivery_count | int | 0: ranges are read by position |
| replicated_from | string | cluster the message came from; null when it was published here |
| is_null_value | boolean | |
"""

from __future__ import annotations

from typing import Final

COLUMN_TYPES: Final = {
    "value": "binary",
    "key": "binary",
    "key_is_string": "boolean",
    "topic": "string",
    "partition": "int",
    "message_id": "string",
    "entry_index": "bigint",
    "publish_time": "timestamp",
    "event_time": "timestamp",
    "properties": "map<string,string>",
    "producer_name": "string",
    "sequence_id": "bigint",
    "ordering_key": "binary",
    "schema_version": "binary",
    "redelivery_count": "int",
    "replicated_from": "string",
    "is_null_value": "boolean",
}
"""Name to Spark SQL type."""


def column_types(*, text: bool = False) -> dict[str, str]:
    """Name to Spark SQL type of every column; `text` makes the value a string."""
    return {**COLUMN_TYPES, "value": "string"} if text else dict(COLUMN_TYPES)


def columns_ddl(names: tuple[str, ...], *, text: bool = False) -> str:
    """The schema of these columns as Spark reads it."""
    types = column_types(text=text)
    return ", ".join(f"`{name}` {types[name]}" for name in names)

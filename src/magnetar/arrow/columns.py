"""The columns of a topic as a table, in order. Names and types are a stable interface.

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

EXTRA_TYPES: Final = {
    "headers": "array<struct<key:string,value:string>>",
    "encryption": (
        "struct<algorithm:string,param:binary,keys:array<struct<name:string,value:binary>>,"
        "compression:string,plain_bytes:bigint,messages:int>"
    ),
    "ledger_id": "bigint",
    "entry_id": "bigint",
    "batch_index": "int",
    "broker_time": "timestamp",
    "payload": "binary",
}
"""Columns that a table has only on request.

| Column | Meaning |
|---|---|
| headers | the properties in their order, names that occur twice included |
| encryption | data for decryption of encrypted entries; the value is then the entry's payload |
| ledger_id, entry_id, batch_index | the position as numbers; the batch index is -1 where there is none |
| broker_time | broker's clock when it stored the message; null when the broker keeps no such times |
| payload | the payload as it is, also beside a decoded value; null when the message has none |
"""


def column_types() -> dict[str, str]:
    """Name to Spark SQL type of every column; the value has its type without a schema."""
    return COLUMN_TYPES | EXTRA_TYPES


def columns_ddl(names: tuple[str, ...], value: str, *, rescue: str = "") -> str:
    """The schema of these columns as Spark SQL text. `value`: type of the value. `rescue`: name of an
    additional binary column; "" for none."""
    types = column_types() | {"value": value, rescue: "binary"}
    return ", ".join(f"`{name}` {types[name]}" for name in names)

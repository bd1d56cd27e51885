"""Numbers of the metadata's fields, and the fields that each column needs.

Names with S_ are fields of SingleMessageMetadata, the others of MessageMetadata.

Source: Pulsar binary protocol.
"""

from __future__ import annotations

from typing import Final

PRODUCER_NAME: Final = 1
SEQUENCE_ID: Final = 2
PUBLISH_TIME: Final = 3
PROPERTIES: Final = 4
REPLICATED_FROM: Final = 5
KEY: Final = 6
COMPRESSION: Final = 8
PLAIN_SIZE: Final = 9
BATCH_COUNT: Final = 11
EVENT_TIME: Final = 12
ENCRYPTION_KEYS: Final = 13
SCHEMA_VERSION: Final = 16
KEY_IS_BASE64: Final = 17
ORDERING_KEY: Final = 18
DELIVER_AT: Final = 19
MARKER: Final = 20
TXN_LEAST: Final = 22
TXN_MOST: Final = 23
HIGHEST_SEQUENCE_ID: Final = 24
NULL_VALUE: Final = 25
UUID: Final = 26
CHUNK_COUNT: Final = 27
CHUNKS_TOTAL_BYTES: Final = 28
CHUNK_ID: Final = 29
NULL_KEY: Final = 30
ALWAYS: Final = frozenset(
    (COMPRESSION, PLAIN_SIZE, BATCH_COUNT, ENCRYPTION_KEYS, MARKER, NULL_VALUE, CHUNK_COUNT)
)
"""Fields of MessageMetadata that are needed to read any entry."""

COLUMN_FIELDS: Final[dict[str, tuple[int, ...]]] = {
    "key": (KEY, KEY_IS_BASE64, NULL_KEY),
    "key_is_string": (KEY, KEY_IS_BASE64, NULL_KEY),
    "publish_time": (PUBLISH_TIME,),
    "event_time": (EVENT_TIME,),
    "properties": (PROPERTIES,),
    "producer_name": (PRODUCER_NAME,),
    "sequence_id": (SEQUENCE_ID,),
    "ordering_key": (ORDERING_KEY,),
    "schema_version": (SCHEMA_VERSION,),
    "replicated_from": (REPLICATED_FROM,),
    "headers": (PROPERTIES,),
}

S_PROPERTIES: Final = 1
S_KEY: Final = 2
S_PAYLOAD_SIZE: Final = 3
S_COMPACTED: Final = 4
S_EVENT_TIME: Final = 5
S_KEY_IS_BASE64: Final = 6
S_ORDERING_KEY: Final = 7
S_SEQUENCE_ID: Final = 8
S_NULL_VALUE: Final = 9
S_NULL_KEY: Final = 10
S_ALWAYS: Final = frozenset((S_COMPACTED, S_NULL_VALUE))

S_COLUMN_FIELDS: Final[dict[str, tuple[int, ...]]] = {
    "key": (S_KEY, S_KEY_IS_BASE64, S_NULL_KEY),
    "key_is_string": (S_KEY, S_KEY_IS_BASE64, S_NULL_KEY),
    "event_time": (S_EVENT_TIME,),
    "properties": (S_PROPERTIES,),
    "headers": (S_PROPERTIES,),
    "sequence_id": (S_SEQUENCE_ID,),
    "ordering_key": (S_ORDERING_KEY,),
}

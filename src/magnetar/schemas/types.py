"""The types of schemas: their names, and the kinds of their definitions.

Source: Pulsar binary protocol (`Schema.Type`); the names are those of Pulsar's admin API and of the
properties of KeyValue schemas.
"""

from __future__ import annotations

import re
from typing import Final

from magnetar.wire import pulsar_pb2 as pb

_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ODD: Final = {"Bool": "BOOLEAN"}


def _name(wire_name: str) -> str:
    """Name in the admin API: `KeyValue` becomes KEY_VALUE."""
    return _ODD.get(wire_name) or _WORD.sub("_", wire_name).upper()


TYPES: Final[dict[str, int]] = {_name(name): number for name, number in pb.Schema.Type.items()}
"""Name to number on the wire."""
NAMES: Final = {number: name for name, number in TYPES.items()}

BYTES_TYPES: Final = frozenset((TYPES["NONE"], TYPES["AUTO_CONSUME"]))
"""Types that mean "no schema". They are not checked, and only a producer's NONE is stored."""
AVRO_TYPES: Final = frozenset((TYPES["AVRO"], TYPES["JSON"], TYPES["PROTOBUF"]))
"""Types whose definition is an Avro schema, whatever the messages are encoded with."""
KEY_VALUE: Final = TYPES["KEY_VALUE"]
PROTOBUF_NATIVE: Final = TYPES["PROTOBUF_NATIVE"]
DEFINED_TYPES: Final = AVRO_TYPES | {KEY_VALUE, PROTOBUF_NATIVE, TYPES["EXTERNAL"]}
"""Types that have a definition; the type alone describes the others."""

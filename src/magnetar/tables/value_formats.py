"""Formats of the value of a table. Planning chooses one, and each reading process makes a decoder from it.

A format is a plain value, which can be sent to other processes: the Arrow type, and the parts of the topic's
schema that decoding needs. A schema version of a message is fetched at the first message that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from magnetar.arrow.plain_values import PLAIN_TYPES
from magnetar.arrow.values import TextValues, Values

Definitions = Callable[[bytes], "tuple[bytes, bytes] | None"]
"""Gets the definitions of a schema version: of the value, and of the key (empty when it has none)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    """One format. Can be pickled."""

    kind: str
    """bytes, string, json, avro, protobuf, keyvalue, variant, or a name of PLAIN_TYPES."""
    type: pa.DataType | None = None
    """The type of decoded values; None for JSON whose type the user has to give."""
    definition: bytes = b""
    """The Avro definition of the values to return, or the FileDescriptorSet."""
    message: str = ""
    """Name of the Protobuf message type in `definition`."""
    parts: tuple[ValueFormat, ...] = ()
    """The formats of key and value of a key-value, or the format inside a variant."""
    separated: bool = False
    """Whether the key of a key-value is in the message's key."""
    is_key: bool = False
    """Whether the definitions of schema versions are those of the key."""

    def open(self, definitions: Definitions) -> Values | None:
        """The decoder; None for plain bytes. A variant is opened by its reader. Raises ValueSchemaError."""
        if self.kind == "bytes":
            return None
        if self.kind == "string":
            return TextValues()
        if self.kind in PLAIN_TYPES:
            from magnetar.arrow.plain_values import PlainValues

            return PlainValues(self.kind)
        if self.kind == "json":
            from magnetar.arrow.json_values import JsonValues

            assert self.type is not None
            return JsonValues(self.type, micros=b"timestamp-micros" in self.definition)
        if self.kind == "avro":
            from magnetar.arrow.avro_values import AvroValues

            assert self.type is not None
            return AvroValues(self.type, self.definition, self._writers(definitions))
        if self.kind == "protobuf":
            from magnetar.arrow.protobuf_values import ProtobufValues

            assert self.type is not None
            return ProtobufValues(self.type, self.definition, self.message)
        return self._open_parts(definitions)

    def _open_parts(self, definitions: Definitions) -> Values:
        from magnetar.arrow.key_values import BytesValues, KeyValues

        assert self.kind == "keyvalue", f"{self.kind} has no decoder here"
        key, value = (part.open(definitions) or BytesValues() for part in self.parts)
        return KeyValues(key, value, separated=self.separated)

    def _writers(self, definitions: Definitions) -> Callable[[bytes], bytes | None]:
        def definition(version: bytes) -> bytes | None:
            found = definitions(version)
            return None if found is None else found[1 if self.is_key else 0]

        return definition


BYTES: Final = ValueFormat(kind="bytes", type=pa.binary())
TEXT: Final = ValueFormat(kind="string", type=pa.string())

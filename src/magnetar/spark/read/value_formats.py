"""Formats of the value of a table. The driver chooses one, and each task makes a decoder from it.

A format is a plain value, which is sent to the tasks: the Arrow type, and the parts of the topic's schema
that decoding needs. A schema version of a message is fetched at the first message that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StructType, VariantType

from magnetar.arrow.errors import ValueSchemaError
from magnetar.arrow.plain_values import PLAIN_TYPES
from magnetar.arrow.values import TextValues, Values
from magnetar.spark.errors import OptionError

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

    @property
    def spark_type(self) -> DataType:
        """The type of the column in Spark. Raises OptionError when the user has to give it."""
        if self.kind == "variant":
            return VariantType()
        if self.type is None:
            raise OptionError(
                "valueFormat=json: the topic has no schema that says what is in its values. Give"
                " valueSchema, or .schema('value STRUCT<...>, key BINARY'), or read valueFormat=variant"
            )
        return from_arrow_type(self.type, prefer_timestamp_ntz=True)

    def narrowed(self, wanted: DataType) -> ValueFormat:
        """The format with only the fields of a user's schema. Raises OptionError."""
        if (self.type is not None or self.kind == "variant") and wanted == self.spark_type:
            return self
        if self.kind not in ("json", "avro", "protobuf"):
            shown = "variant" if self.kind == "variant" else self.spark_type.simpleString()
            raise OptionError(f"a topic has no column `value {wanted.simpleString()}`; it is {shown}")
        narrowed = replace(self, type=to_arrow_type(wanted, timezone="UTC"))
        try:
            narrowed.open(lambda _: None)
        except ValueSchemaError as error:
            raise OptionError(
                f"the topic's schema does not give `value {wanted.simpleString()}`: {error}"
            ) from error
        return narrowed

    def open(self, definitions: Definitions) -> Values | None:
        """The decoder; None for plain bytes. Raises ValueSchemaError."""
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

        inside = [part.open(definitions) or BytesValues() for part in self.parts]
        if self.kind == "variant":
            from magnetar.spark.read.variant_values import VariantValues

            return VariantValues(inside[0] if inside else None)
        key, value = inside
        return KeyValues(key, value, separated=self.separated)

    def _writers(self, definitions: Definitions) -> Callable[[bytes], bytes | None]:
        def definition(version: bytes) -> bytes | None:
            found = definitions(version)
            return None if found is None else found[1 if self.is_key else 0]

        return definition


BYTES: Final = ValueFormat(kind="bytes", type=pa.binary())
TEXT: Final = ValueFormat(kind="string", type=pa.string())


def type_from_json(text: str) -> pa.DataType:
    """The Arrow type of a Spark schema in JSON (`StructType.json()`). Raises OptionError."""
    import json

    try:
        return to_arrow_type(StructType.fromJson(json.loads(text)), timezone="UTC")
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError(
            "valueSchema: expected an Avro definition, or a Spark schema in JSON, as StructType.json() gives"
        ) from error

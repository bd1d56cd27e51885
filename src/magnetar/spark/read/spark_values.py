"""The value of a table as Spark has it: its type there, and the decoder for it."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StructType, VariantType

from magnetar.arrow.errors import ValueSchemaError
from magnetar.arrow.values import Values
from magnetar.spark.errors import OptionError
from magnetar.tables.value_formats import Definitions, ValueFormat


def spark_type(value: ValueFormat) -> DataType:
    """The type of the column in Spark. Raises OptionError when the user has to give it."""
    if value.kind == "variant":
        return VariantType()
    if value.type is None:
        raise OptionError(
            "valueFormat=json: the topic has no schema that says what is in its values. Give"
            " valueSchema, or .schema('value STRUCT<...>, key BINARY'), or read valueFormat=variant"
        )
    return from_arrow_type(value.type, prefer_timestamp_ntz=True)


def narrowed(value: ValueFormat, wanted: DataType) -> ValueFormat:
    """The format with only the fields of a user's schema. Raises OptionError."""
    if (value.type is not None or value.kind == "variant") and wanted == spark_type(value):
        return value
    if value.kind not in ("json", "avro", "protobuf"):
        shown = "variant" if value.kind == "variant" else spark_type(value).simpleString()
        raise OptionError(f"a topic has no column `value {wanted.simpleString()}`; it is {shown}")
    found = replace(value, type=to_arrow_type(wanted, timezone="UTC"))
    try:
        found.open(lambda _: None)
    except ValueSchemaError as error:
        raise OptionError(
            f"the topic's schema does not give `value {wanted.simpleString()}`: {error}"
        ) from error
    return found


def open_values(value: ValueFormat, definitions: Definitions) -> Values | None:
    """The decoder; None for plain bytes. Raises ValueSchemaError."""
    if value.kind != "variant":
        return value.open(definitions)
    from magnetar.spark.read.variant_values import VariantValues

    inside = [part.open(definitions) for part in value.parts]
    return VariantValues(inside[0] if inside else None)


def type_from_json(text: str) -> pa.DataType:
    """The Arrow type of a Spark schema in JSON (`StructType.json()`). Raises OptionError."""
    try:
        return to_arrow_type(StructType.fromJson(json.loads(text)), timezone="UTC")
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError(
            "valueSchema: expected an Avro definition, or a Spark schema in JSON, as StructType.json() gives"
        ) from error

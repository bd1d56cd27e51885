"""Checks whether a schema may be added to a topic.

The strategy names the direction that must work. BACKWARD: the new schema reads messages of the old one.
FORWARD: the old schema reads messages of the new one. FULL: both. The _TRANSITIVE strategies compare with
every stored version, the others with the latest.

Source: Pulsar's schema compatibility strategies. The rules for a type are in the module of that type.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.schemas import key_value
from magnetar.schemas.errors import IncompatibleSchemaError, InvalidSchemaError
from magnetar.schemas.types import (
    AVRO_TYPES,
    BYTES_TYPES,
    DEFINED_TYPES,
    KEY_VALUE,
    NAMES,
    PROTOBUF_NATIVE,
    TYPES,
)
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    # Loaded where a definition is read: a start needs none, and each module is time of every start.
    from magnetar.schemas.avro_definition import Avro


class Strategy(enum.Enum):
    """A strategy by its name in the admin API."""

    UNDEFINED = "UNDEFINED"
    """No policy: the setting `schema_compatibility` applies, by default FULL."""
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def defined(self) -> Strategy:
        """This strategy, or FULL for UNDEFINED: callers that know the broker's setting have applied it."""
        return Strategy.FULL if self is Strategy.UNDEFINED else self

    @property
    def transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")

    @property
    def backward(self) -> bool:
        """Whether the new schema must read existing messages."""
        return self.defined.value.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Whether existing schemas must read new messages."""
        return self.defined.value.startswith(("FORWARD", "FULL"))

    @property
    def for_consumers(self) -> Strategy:
        """The strategy for a schema of a consumer, which must only read existing messages."""
        if self in (Strategy.ALWAYS_COMPATIBLE, Strategy.ALWAYS_INCOMPATIBLE):
            return self
        if self in (Strategy.BACKWARD_TRANSITIVE, Strategy.FULL_TRANSITIVE):
            return Strategy.BACKWARD_TRANSITIVE
        return Strategy.BACKWARD


Versions = Sequence[tuple[int, pb.Schema]]
"""Stored schemas with their versions, oldest first."""


def check(schema: pb.Schema, stored: Versions, strategy: Strategy) -> None:
    """Checks that `schema` may be used beside `stored`. Raises IncompatibleSchemaError,
    InvalidSchemaError."""
    check_definition(schema)
    if not stored or strategy is Strategy.ALWAYS_COMPATIBLE:
        return
    for version, old in stored if strategy.transitive else stored[-1:]:
        if identity(old) == identity(schema):
            continue
        if strategy is Strategy.ALWAYS_INCOMPATIBLE:
            raise IncompatibleSchemaError(
                "the topic has another schema, and its strategy ALWAYS_INCOMPATIBLE allows no change"
            )
        if strategy.backward:
            _require(schema, old, f"the new schema cannot read version {version}", strategy)
        if strategy.forward:
            _require(old, schema, f"version {version} cannot read the new schema", strategy)


def _require(reader: pb.Schema, writer: pb.Schema, text: str, strategy: Strategy) -> None:
    reason = unreadable(reader, writer)
    if reason is not None:
        raise IncompatibleSchemaError(f"{text} (strategy {strategy.defined.value}): {reason}")


def unreadable(reader: pb.Schema, writer: pb.Schema) -> str | None:
    """Why a reader with one schema cannot read all values written with the other; None when it can.

    Raises InvalidSchemaError.
    """
    if reader.type != writer.type:
        return f"the type is {NAMES[reader.type]} as read and {NAMES[writer.type]} as written"
    if reader.type == KEY_VALUE:
        parts = zip(("key", "value"), key_value.split(reader), key_value.split(writer), strict=True)
        for part, part_reader, part_writer in parts:
            reason = unreadable(part_reader, part_writer)
            if reason is not None:
                return f"{part}: {reason}"
        return None
    if reader.type == PROTOBUF_NATIVE:
        from magnetar.schemas import protobuf_compatibility as protobuf

        return protobuf.unreadable(protobuf.parse(reader.schema_data), protobuf.parse(writer.schema_data))
    if reader.type in AVRO_TYPES:
        types = _avro(reader), _avro(writer)
        if types[0] is None or types[1] is None:
            return None
        from magnetar.schemas import avro_compatibility

        return avro_compatibility.unreadable(types[0], types[1])
    return None


def check_definition(schema: pb.Schema) -> None:
    """Raises InvalidSchemaError when the definition is not valid for the schema's type."""
    if schema.type == KEY_VALUE:
        for part in key_value.split(schema):
            if part.type not in BYTES_TYPES:
                check_definition(part)
    elif schema.type == PROTOBUF_NATIVE:
        # Loads the descriptors of descriptors, which costs tens of milliseconds and few need.
        from magnetar.schemas import protobuf_compatibility as protobuf

        protobuf.parse(schema.schema_data)
    elif schema.type in AVRO_TYPES:
        _avro(schema)


def _avro(schema: pb.Schema) -> Avro | None:
    """The Avro type of a schema; None for a JSON Schema of old clients, which cannot be compared."""
    from magnetar.schemas import avro_definition

    document = avro_definition.parse_json(schema.schema_data, f"the {NAMES[schema.type]} definition")
    try:
        return avro_definition.parse(document)
    except InvalidSchemaError:
        if schema.type == TYPES["JSON"] and isinstance(document, dict) and _is_json_schema(document):
            return None
        raise


def _is_json_schema(document: dict[str, object]) -> bool:
    return "$schema" in document or document.get("type") == "object"


def identity(schema: pb.Schema) -> tuple[int, bytes, tuple[tuple[str, str], ...]]:
    """A value that is equal for schemas with the same meaning; names and white space do not count."""
    if schema.type not in DEFINED_TYPES:
        return schema.type, b"", ()
    data = schema.schema_data
    pairs: tuple[tuple[str, str], ...] = ()
    if schema.type == KEY_VALUE:
        found = key_value.properties(schema)
        keys = ("key.schema.type", "value.schema.type", "kv.encoding.type")
        pairs = tuple((key, found.get(key, "")) for key in keys)
    elif schema.type in AVRO_TYPES:
        try:
            data = json.dumps(json.loads(data), sort_keys=True).encode()
        except (ValueError, RecursionError):
            # Not a definition; `check` says so.
            data = schema.schema_data
    return schema.type, data, pairs

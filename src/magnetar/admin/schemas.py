"""`/admin/v2/schemas`: the schemas of a topic and their versions."""

from __future__ import annotations

import re
from typing import Any, Final

from magnetar.admin.call import Call, Route
from magnetar.admin.errors import BadRequestError, NotHereError
from magnetar.schemas.registry import StoredSchema
from magnetar.wire import pulsar_pb2 as pb

_T: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"

_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ODD: Final = {"Bool": "BOOLEAN"}


def _rest_name(name: str) -> str:
    """The protocol's name of a type as the admin API writes it: `KeyValue` is KEY_VALUE."""
    return _ODD.get(name) or _WORD.sub("_", name).upper()


REST_TYPES: Final[dict[str, int]] = {_rest_name(name): number for name, number in pb.Schema.Type.items()}
"""Type in the admin API to type on the wire."""
_NAMES: Final = {number: name for name, number in REST_TYPES.items()}


def _pairs(schema: pb.Schema) -> Any:
    # Untyped: in the generated stubs the enum value KeyValue hides the message of that name.
    return schema.properties


def document(stored: StoredSchema) -> dict[str, Any]:
    """A schema as the admin API shows it."""
    return {
        "version": stored.version,
        "type": _NAMES[stored.schema.type],
        "timestamp": stored.created_ms,
        "data": stored.schema.schema_data.decode("utf-8", "replace"),
        "properties": {item.key: item.value for item in _pairs(stored.schema)},
    }


def _version(number: int) -> dict[str, dict[str, int]]:
    return {"version": {"version": number}}


def _posted(call: Call) -> pb.Schema:
    body = call.json_object()
    type_ = REST_TYPES.get(str(body.get("type", "")).upper())
    if type_ is None:
        raise BadRequestError(f"type must be one of {', '.join(REST_TYPES)}")
    text = body.get("schema", "")
    properties = body.get("properties") or {}
    if not isinstance(text, str) or not isinstance(properties, dict):
        raise BadRequestError("schema must be text, properties an object")
    schema = pb.Schema(
        name=call.topic().base.local,
        type=pb.Schema.Type.Name(type_),
        schema_data=text.encode("utf-8", "surrogatepass"),
    )
    for key, value in properties.items():
        _pairs(schema).add(key=key, value=str(value))
    return schema


async def latest(call: Call) -> object:
    topic = call.topic()
    await call.broker.check_name(topic)
    stored = await call.broker.schemas.latest(topic)
    if stored is None:
        raise NotHereError(f"{topic} has no schema")
    return document(stored)


async def by_version(call: Call) -> object:
    topic = call.topic()
    await call.broker.check_name(topic)
    number = call.integer("version")
    stored = await call.broker.schemas.get(topic, number)
    if stored is None:
        raise NotHereError(f"{topic} has no schema of version {number}")
    return document(stored)


async def all_versions(call: Call) -> object:
    topic = call.topic()
    await call.broker.check_name(topic)
    versions = await call.broker.schemas.versions(topic)
    return {"getSchemaResponses": [document(stored) for stored in versions]}


async def post(call: Call) -> object:
    topic = call.topic()
    await call.broker.check_name(topic)
    return _version((await call.broker.schemas.add(topic, _posted(call))).version)


async def delete(call: Call) -> object:
    topic = call.topic()
    await call.broker.check_name(topic)
    stored = await call.broker.schemas.latest(topic)
    await call.broker.schemas.delete(topic)
    return _version(-1 if stored is None else stored.version)


ROUTES: list[Route] = [
    ("GET", f"{_T}/schema", latest),
    ("POST", f"{_T}/schema", post),
    ("DELETE", f"{_T}/schema", delete),
    ("GET", f"{_T}/schema/{{version}}", by_version),
    ("GET", f"{_T}/schemas", all_versions),
]

"""`/admin/v2/schemas`: the schemas of a topic and their versions.

The definition of a KeyValue schema has the form `{"key": ..., "value": ...}`; a part without a definition is
"".
"""

from __future__ import annotations

import json
from typing import Final

from magnetar.admin.calls.call import Call, Route
from magnetar.admin.calls.errors import BadRequestError, NotHereError
from magnetar.broker.policies.schema_admission import rules_of
from magnetar.schemas import key_value
from magnetar.schemas.avro_definition import parse_json
from magnetar.schemas.errors import IncompatibleSchemaError
from magnetar.schemas.registry import StoredSchema
from magnetar.schemas.types import KEY_VALUE, NAMES, TYPES
from magnetar.wire import pulsar_pb2 as pb

_T: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"


def document(stored: StoredSchema) -> dict[str, object]:
    """The document of a schema."""
    return {
        "version": stored.version,
        "type": NAMES[stored.schema.type],
        "timestamp": stored.created_ms,
        "data": _shown(stored.schema),
        "properties": key_value.properties(stored.schema),
    }


def _shown(schema: pb.Schema) -> str:
    if schema.type != KEY_VALUE:
        return schema.schema_data.decode("utf-8", "replace")
    parts = key_value.split(schema)
    texts = [part.schema_data.decode("utf-8", "replace") or '""' for part in parts]
    return f'{{"key":{texts[0]},"value":{texts[1]}}}'


def _definition(text: str, type_: int) -> bytes:
    if type_ != KEY_VALUE:
        return text.encode("utf-8", "surrogatepass")
    document = parse_json(text.encode("utf-8", "surrogatepass"), "the KeyValue definition")
    if not isinstance(document, dict) or not {"key", "value"} <= document.keys():
        raise BadRequestError('the schema of type KEY_VALUE must be {"key": ..., "value": ...}')
    parts = [b"" if document[key] == "" else json.dumps(document[key]).encode() for key in ("key", "value")]
    return key_value.join(parts[0], parts[1])


def _version(number: int) -> dict[str, dict[str, int]]:
    return {"version": {"version": number}}


def _posted(call: Call) -> pb.Schema:
    body = call.json_object()
    type_ = TYPES.get(str(body.get("type", "")).upper())
    if type_ is None:
        raise BadRequestError(f"type must be one of {', '.join(TYPES)}")
    text = body.get("schema", "")
    properties = body.get("properties") or {}
    if not isinstance(text, str) or not isinstance(properties, dict):
        raise BadRequestError("schema must be text, properties an object")
    schema = pb.Schema(
        name=call.topic().base.local,
        type=pb.Schema.Type.Name(type_),
        schema_data=_definition(text, type_),
    )
    for key, value in properties.items():
        schema.properties.add(key=key, value=str(value))
    return schema


async def latest(call: Call) -> object:
    topic = call.topic()
    await call.broker.check_name(topic)
    stored = await call.broker.schemas.latest(topic)
    if stored is None:
        raise NotHereError("Schema not found", remedy=f"{topic} has none")
    return document(stored)


async def by_version(call: Call) -> object:
    topic = call.topic()
    await call.broker.check_name(topic)
    number = call.integer("version")
    stored = await call.broker.schemas.get(topic, number)
    if stored is None:
        raise NotHereError("Schema not found", remedy=f"{topic} has none of version {number}")
    return document(stored)


async def all_versions(call: Call) -> object:
    topic = call.topic()
    await call.broker.check_name(topic)
    versions = await call.broker.schemas.versions(topic)
    return {"getSchemaResponses": [document(stored) for stored in versions]}


async def post(call: Call) -> object:
    topic = call.topic()
    await call.broker.check_name(topic)
    rules = await rules_of(call.broker, topic)
    return _version((await call.broker.schemas.add(topic, _posted(call), strategy=rules.strategy)).version)


async def compatibility(call: Call) -> object:
    """Whether `post` would accept the schema."""
    topic = call.topic()
    await call.broker.check_name(topic)
    rules = await rules_of(call.broker, topic)
    answer: dict[str, object] = {
        "compatibility": True,
        "schemaCompatibilityStrategy": rules.strategy.defined.value,
    }
    try:
        await call.broker.schemas.check(topic, _posted(call), rules.strategy)
    except IncompatibleSchemaError as error:
        answer["compatibility"] = False
        answer["reason"] = str(error)
    return answer


async def version_of(call: Call) -> object:
    """The version of a stored schema."""
    topic = call.topic()
    await call.broker.check_name(topic)
    stored = await call.broker.schemas.find(topic, _posted(call))
    if stored is None:
        raise NotHereError(f"{topic} has no such schema")
    return {"version": stored.version}


async def delete(call: Call) -> object:
    """Ends the validity of all schemas; `force` deletes them, after which old messages cannot be decoded."""
    topic = call.topic()
    await call.broker.check_name(topic)
    version = await call.broker.schemas.retire(topic)
    if call.flag("force"):
        await call.broker.schemas.delete(topic)
    # A number, where all other answers have an object: Pulsar's client can read nothing else.
    return {"version": version}


async def metadata(call: Call) -> object:
    """Storage of the schemas: here in the metadata, not in a ledger."""
    topic = call.topic()
    await call.broker.check_name(topic)
    versions = await call.broker.schemas.versions(topic)
    if not versions:
        raise NotHereError(f"{topic} has no schema")
    entries = [{"ledgerId": -1, "entryId": -1, "version": stored.version} for stored in versions]
    return {"info": entries[-1], "index": entries}


ROUTES: list[Route] = [
    ("GET", f"{_T}/schema", latest),
    ("POST", f"{_T}/schema", post),
    ("DELETE", f"{_T}/schema", delete),
    ("GET", f"{_T}/schema/{{version}}", by_version),
    ("GET", f"{_T}/schemas", all_versions),
    ("GET", f"{_T}/metadata", metadata),
    ("POST", f"{_T}/compatibility", compatibility),
    ("POST", f"{_T}/version", version_of),
]

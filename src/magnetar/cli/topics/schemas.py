"""`magnetar schemas`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from magnetar.cli.verbs import Given, Verb, group

TYPES: Final = (
    "AVRO", "JSON", "STRING", "BYTES", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "BOOLEAN",
    "DATE", "TIME", "TIMESTAMP", "PROTOBUF", "PROTOBUF_NATIVE", "KEY_VALUE",
)  # fmt: skip

_DEFINITION: Final = (
    click.Option(
        ["--type", "kind"],
        type=click.Choice(TYPES, case_sensitive=False),
        required=True,
        help="Type of the schema.",
    ),
    click.Option(
        ["--file"],
        type=click.Path(path_type=Path),
        help="File with the definition, for AVRO and JSON in Avro's JSON.  [no definition]",
    ),
    click.Option(
        ["--property", "pairs"],
        multiple=True,
        metavar="KEY=VALUE",
        help="Property of the schema; may be repeated.  [none]",
    ),
)


def _body(given: Given) -> object:
    file: Path | None = given["file"]
    properties = {}
    for pair in given["pairs"]:
        key, separator, value = pair.partition("=")
        if not separator:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--property")
        properties[key] = value
    try:
        text = "" if file is None else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{file} cannot be read: {error}", param_hint="--file") from error
    return {"type": given["kind"].upper(), "schema": text, "properties": properties}


def _opened(document: object) -> object:
    """The schema with its definition as a document, if the definition is JSON."""
    if not isinstance(document, dict):
        return document
    try:
        return {**document, "data": json.loads(document["data"])}
    except (KeyError, ValueError, TypeError):
        return document


VERBS: Final = (
    Verb(
        name="get",
        help="Show the newest schema of TOPIC.",
        path="{schema}/schema",
        rows=_opened,
        example="schemas get orders -o json",
    ),
    Verb(
        name="version",
        help="Show the schema of TOPIC with the number VERSION.",
        path="{schema}/schema/{version}",
        rows=_opened,
        example="schemas version orders 0",
    ),
    Verb(
        name="list",
        help="Show all schemas of TOPIC.",
        path="{schema}/schemas",
        rows=lambda found: found["getSchemaResponses"],
        columns=("version", "type", "timestamp", "data"),
        example="schemas list orders",
    ),
    Verb(
        name="upload",
        help="Give TOPIC a new schema, which must be compatible.",
        method="POST",
        path="{schema}/schema",
        options=_DEFINITION,
        body=_body,
        done="the schema is there",
        example="schemas upload orders --type AVRO --file order.avsc",
    ),
    Verb(
        name="check",
        help="Check whether a schema is compatible with those of TOPIC.",
        method="POST",
        path="{schema}/compatibility",
        options=_DEFINITION,
        body=_body,
        example="schemas check orders --type AVRO --file order.avsc",
    ),
    Verb(
        name="delete",
        help="Stop checking clients against the schemas of TOPIC; with --force messages can no longer be "
        "decoded.",
        method="DELETE",
        path="{schema}/schema",
        options=(click.Option(["--force"], is_flag=True, help="Delete the schemas for good."),),
        query={"force": "force"},
        question="Delete the schemas of {topic}?",
        example="schemas delete orders",
    ),
)

schemas = group("schemas", "Schemas of topics, by version.", VERBS)

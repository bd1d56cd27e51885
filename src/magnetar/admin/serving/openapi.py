"""The OpenAPI document, generated from the routes, so that it always matches them.

A route gives path and method; the first line of its handler's docstring is the summary. Bodies and answers
have the schemas that an `Operation` declares, else "any". Source: OpenAPI 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from magnetar import __version__
from magnetar.admin.calls.call import Call, Handler, Operation, Route

PATH: Final = "/openapi.json"

_VARIABLE: Final = re.compile(r"\{(\w+)\}")
_NUMBERS: Final = frozenset({"count", "seconds", "timestamp", "ledger", "entry", "number", "version"})
"""Names of path variables that are numbers."""
_FLAGS: Final = frozenset({"applied", "isGlobal", "force"})
"""Names of query parameters that are true or false."""
_FORCED: Final = ("tenants", "namespaces", "persistent", "non-persistent", "schemas")
"""Groups of routes whose deletions can be forced."""

_REFUSALS: Final = {
    "400": "the request cannot be read",
    "401": "the caller is not authenticated",
    "403": "the caller has no right",
    "404": "it is not there",
    "405": "not possible on this",
    "406": "not acceptable",
    "408": "the body did not arrive in time",
    "409": "it conflicts with what is there",
    "412": "a condition does not hold, or a name is none",
    "413": "the body is too large",
    "421": "asked by a name that is not this machine's",
    "422": "what was sent cannot be processed",
    "500": "an error of this broker",
    "501": "not offered by this broker",
    "503": "not now; try again",
    "507": "the disk is full",
}
_ANY: Final[Mapping[str, object]] = {
    "application/json": {"schema": {}},
    "text/plain": {"schema": {"type": "string"}},
    "application/octet-stream": {"schema": {}},
}
"""The content of a route without a declaration."""
_PARTS: Final[Mapping[str, object]] = {
    "text": {"type": "string"},
    "file": {"type": "string", "contentMediaType": "application/octet-stream"},
}
"""Schemas of the parts of an upload."""


def document(routes: Iterable[Route]) -> dict[str, object]:
    """The document of these routes, without those that refuse every method."""
    paths: dict[str, dict[str, object]] = {}
    for method, path, handler in routes:
        if method != "*":
            paths.setdefault(path, {})[method.lower()] = _operation(method, path, handler)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Magnetar", "version": __version__},
        "paths": {path: paths[path] for path in sorted(paths)},
        "components": {
            "schemas": {
                "Refusal": {
                    "type": "object",
                    "properties": {"reason": {"type": "string"}},
                    "required": ["reason"],
                }
            },
            "responses": {
                status: {
                    "description": text,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
                }
                for status, text in _REFUSALS.items()
            },
        },
    }


def _operation(method: str, path: str, handler: Handler) -> dict[str, object]:
    declared = handler if isinstance(handler, Operation) else Operation(handler)
    summary = (declared.handler.__doc__ or "").strip().partition("\n")[0]
    answer = _ANY if declared.answer is None else {"application/json": {"schema": declared.answer}}
    if declared.contents:
        answer = {content: {"schema": {}} for content in declared.contents}
    found: dict[str, object] = {
        "operationId": _name(method, path),
        **({"summary": summary} if summary else {}),
        "parameters": [*_in_path(path), *_in_query(method, path, declared)],
        "responses": {
            "200": {"description": "done", "content": answer},
            "204": {"description": "done; or nothing is set"},
            **{status: {"$ref": f"#/components/responses/{status}"} for status in _REFUSALS},
        },
    }
    if declared.upload is not None:
        parts = {name: _PARTS[kind] for name, kind in declared.upload.items()}
        schema = {"type": "object", "properties": parts}
        found["requestBody"] = {"content": {"multipart/form-data": {"schema": schema}}, "required": True}
    elif declared.body is not None:
        found["requestBody"] = {"content": {"application/json": {"schema": declared.body}}}
    elif method in ("PUT", "POST"):
        found["requestBody"] = {"content": {"application/json": {"schema": {}}}, "required": False}
    return found


def _name(method: str, path: str) -> str:
    return "_".join([method.lower(), *re.findall(r"\w+", path.removeprefix("/admin"))])


def _in_path(path: str) -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer"} if name in _NUMBERS else {"type": "string"},
        }
        for name in _VARIABLE.findall(path)
    ]


def _in_query(method: str, path: str, declared: Operation) -> list[dict[str, object]]:
    names = list(declared.query)
    if method == "DELETE" and path.split("/")[3:4] and path.split("/")[3] in _FORCED and not names:
        names.append("force")
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "schema": {"type": "boolean"} if name in _FLAGS else {"type": "string"},
        }
        for name in names
    ]


def route_for(routes: list[Route]) -> Route:
    """The route that answers with the document of `routes`."""

    @cache
    def made() -> dict[str, object]:
        return document(routes)

    async def openapi(call: Call) -> object:
        """This document."""
        return made()

    return "GET", PATH, openapi

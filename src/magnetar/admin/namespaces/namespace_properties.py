"""`/admin/v2/namespaces/{tenant}/{namespace}/properties`: notes of an operator on a namespace."""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Call, Route, Text
from magnetar.broker.policies.policies import Policies

PROPERTIES: Final = "properties"
"""Key of the document of a namespace's policies."""
_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"


async def get_all(call: Call) -> object:
    document = await call.broker.policies.namespace(call.namespace())
    return document.get(PROPERTIES) or {}


async def add(call: Call) -> object:
    """Adds properties; others stay."""
    await _merge(call, call.json_strings())
    return None


async def clear(call: Call) -> object:
    await call.broker.policies.update_namespace(
        call.namespace(), lambda document: document.update({PROPERTIES: {}})
    )
    return None


async def get_one(call: Call) -> object:
    document = await call.broker.policies.namespace(call.namespace())
    value = (document.get(PROPERTIES) or {}).get(call.params["key"])
    return None if value is None else Text(value)


async def set_one(call: Call) -> object:
    await _merge(call, {call.params["key"]: call.params["value"]})
    return None


async def remove_one(call: Call) -> object:
    """Removes a property and returns its value."""
    removed = await get_one(call)

    def change(document: Policies) -> None:
        kept = dict(document.get(PROPERTIES) or {})
        kept.pop(call.params["key"], None)
        document[PROPERTIES] = kept

    await call.broker.policies.update_namespace(call.namespace(), change)
    return removed


async def _merge(call: Call, properties: dict[str, str]) -> None:
    await call.broker.policies.update_namespace(
        call.namespace(),
        lambda document: document.update({PROPERTIES: {**(document.get(PROPERTIES) or {}), **properties}}),
    )


ROUTES: list[Route] = [
    ("GET", f"{_N}/properties", get_all),
    ("PUT", f"{_N}/properties", add),
    ("DELETE", f"{_N}/properties", clear),
    ("GET", f"{_N}/property/{{key}}", get_one),
    ("PUT", f"{_N}/property/{{key}}/{{value}}", set_one),
    ("DELETE", f"{_N}/property/{{key}}", remove_one),
]

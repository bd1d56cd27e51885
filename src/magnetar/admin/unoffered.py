"""Routes of Pulsar's features that this broker lacks: answers 501 with the reason, or reads them as not set.

Storing such a setting would let an operator rely on a setting without effect.
"""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Call, Handler, Route
from magnetar.admin.calls.errors import NotImplementedHereError

_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

GROUPS: Final = {
    "/admin/v2/functions": "functions of version 2",
    "/admin/v2/scalable": "scalable topics",
    "/admin/v3/source": "connectors",
    "/admin/v3/sources": "connectors",
    "/admin/v3/sink": "connectors",
    "/admin/v3/sinks": "connectors",
}
"""Groups of Pulsar's API with the names of their features."""

_SHADOWS: Final = "this broker has no shadow topics"


def refuse(reason: str) -> Handler:
    """A handler that answers 501."""

    async def refused(call: Call) -> object:
        raise NotImplementedHereError(reason)

    return refused


async def _none(call: Call) -> object:
    await call.broker.policies.namespace(call.namespace())
    return []


def _routes() -> list[Route]:
    shadows = refuse(_SHADOWS)
    found: list[Route] = [
        ("GET", f"{_T}/shadowTopics", _none),
        ("PUT", f"{_T}/shadowTopics", shadows),
        ("DELETE", f"{_T}/shadowTopics", shadows),
        ("POST", f"{_N}/migration", refuse("this broker does not send its clients to another cluster")),
    ]
    for group, what in GROUPS.items():
        handler = refuse(f"this broker does not offer {what} yet")
        found += [("*", group, handler), ("*", f"{group}/{{rest:path}}", handler)]
    return found


ROUTES: list[Route] = _routes()

"""Redirects calls about topics to the broker that serves them, as Pulsar does.

Calls about a whole partitioned topic are answered by any broker, and so are calls that only need the metadata
store, such as the number of partitions. Any broker answers a look-up, except for a topic without an owner:
that one goes to the broker that will get the topic. A call about the topics of one bundle goes to its owner.
Of several processes of a machine, one answers the calls about functions.

Some handlers find the right broker later: they raise ServedElsewhereError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request

from magnetar.admin.calls.call import AUTHORITATIVE
from magnetar.admin.namespaces import bundles
from magnetar.base.names import NON_PERSISTENT, PERSISTENT, NamespaceName, TopicName
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.place import TopicPlace
from magnetar.broker.service import Broker

_PREFIXES: Final = {
    f"/admin/v2/{PERSISTENT}/": PERSISTENT,
    f"/admin/v2/{NON_PERSISTENT}/": NON_PERSISTENT,
}
_LOOK_UP: Final = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
_TABLE: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/lake"
"""The table of all partitions. One broker keeps what was requested and its result: that of the first
partition."""
_OF_A_BUNDLE: Final = (
    "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/clearBacklog",
    "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/unsubscribe/",
)

_OF_FUNCTIONS: Final = ("/admin/v3/functions", "/admin/v3/packages", "/admin/v2/worker")
"""One of several processes of a machine has the functions."""


async def url_of(broker: Broker, path: str, params: Mapping[str, str], request: Request) -> str | None:
    """URL of the same call at the broker that serves the path's topic; None: it is answered here.

    `path`: path template of the route. Raises ServiceNotReadyError, NamespaceNotFoundError,
    InvalidTopicNameError.
    """
    assert broker.owners is not None, "asked before"
    siblings = broker.siblings
    if siblings is not None and siblings.functions is not None and path.startswith(_OF_FUNCTIONS):
        return location(TopicPlace(siblings.functions), request)
    authoritative = request.query_params.get(AUTHORITATIVE, "").lower() == "true"
    if path.startswith(_OF_A_BUNDLE):
        namespace = NamespaceName(params["tenant"], params["namespace"])
        bundles.check_known(namespace, params["bundle"], await broker.policies.namespace(namespace))
        bundle = Bundle(namespace, *bundles.bounds_of(params["bundle"]))
        place = await broker.owners.locate_bundle(bundle, authoritative=authoritative)
        return location(place, request)
    domain = next((name for prefix, name in _PREFIXES.items() if path.startswith(prefix)), "")
    if path == _LOOK_UP and params["domain"] in _PREFIXES.values():
        domain = params["domain"]
    if not domain or "topic" not in params or "/partition" in path:
        return None
    topic = TopicName.of(domain, params["tenant"], params["namespace"], params["topic"])
    if topic.partition < 0 and path != _LOOK_UP and await broker.policies.partitions(topic):
        if not path.startswith(_TABLE):
            return None
        topic = topic.with_partition(0)
    place = await broker.owners.locate(topic, authoritative=authoritative)
    if path == _LOOK_UP and not place.redirect:
        return None
    return location(place, request)


def location(place: TopicPlace, request: Request) -> str | None:
    """URL of the same call at the broker of `place`; None when that is this one."""
    if place.urls is None:
        return None
    at = place.urls.addresses
    base = at.https if request.url.scheme == "https" else at.http
    return (
        f"{base or at.http or at.https}{request.scope['path']}{_query(request, authoritative=place.redirect)}"
    )


def _query(request: Request, *, authoritative: bool) -> str:
    parts = request.scope["query_string"].decode("ascii", "replace").split("&")
    kept = [part for part in parts if part and not part.startswith(f"{AUTHORITATIVE}=")]
    kept += [f"{AUTHORITATIVE}=true"] if authoritative else []
    return f"?{'&'.join(kept)}" if kept else ""

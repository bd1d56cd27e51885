"""The right that each route needs. Without authentication in the broker, every caller has all rights.

A route's right follows from its path. A path that is not listed here needs a superuser, so that a new route
is closed until it is opened deliberately.

Source: Pulsar's admin API: its operations on topics by the right to produce, to consume or to look up,
everything else of a tenant by the tenant's administrators.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from starlette.requests import Request

from magnetar.admin.access.changes import told_of_change
from magnetar.auth.errors import AuthenticationError, AuthorizationError
from magnetar.auth.http_credentials import credentials_of
from magnetar.auth.identity import METHOD_TLS, Credentials, Identity
from magnetar.auth.permissions import Action
from magnetar.base.names import PERSISTENT, NamespaceName, TopicName
from magnetar.broker.guard import Guard, changed

READING: Final = ("GET", "HEAD", "OPTIONS")
STATE_CERTIFICATE_ROLE: Final = "certificate_role"
"""Key in a request's state: common name of the client's certificate."""
_METHOD_HEADER: Final = "x-pulsar-auth-method-name"
_ORIGINAL_HEADER: Final = "x-original-principal"
"""Role of the client that a proxy speaks for."""


class AccessScope(enum.Enum):
    """The scope of a right."""

    NOTHING = enum.auto()
    """No right: all callers may call it."""
    IDENTITY = enum.auto()
    """All authenticated callers may call it."""
    TOPIC = enum.auto()
    NAMESPACE = enum.auto()
    TENANT = enum.auto()
    RATES = enum.auto()
    """Superusers, and the tenant's administrators where the setting `tenant_rates` allows it."""
    CLUSTER = enum.auto()
    METRICS = enum.auto()
    """Metrics and other figures of the process."""


@dataclass(frozen=True, slots=True)
class Need:
    """The right that a route needs."""

    scope: AccessScope
    action: Action = Action.ADMINISTER_CLUSTER
    domain: str = PERSISTENT
    """Domain of the topic, if the path has no variable for it."""
    of_namespace: bool = False
    """Whether the route concerns a namespace or its list of topics."""

    @property
    def unknown_first(self) -> bool:
        """Whether a caller without credentials gets 401: as in Pulsar, on all routes except those of
        namespaces."""
        return not self.of_namespace


_PUBLIC: Final = ("/status.html", "/admin/v2/brokers/ready")
"""Routes for load balancers, which have no credentials; they only tell whether the broker works."""
SQL: Final = "/sql"
"""Its handler asks for the right to consume of each topic that the statement names."""
_FOR_ALL_ROLES: Final = (
    "/",
    "/openapi.json",
    "/admin/v2/brokers/version",
    "/admin/v2/clusters",
    "/admin/v2/clusters/{cluster}",
    "/admin/v3/functions/builtins",
    "/admin/v3/functions/connectors",
)
_READ_BY_LOOKUP: Final = (
    "partitions",
    "stats",
    "partitioned-stats",
    "internalStats",
    "partitioned-internalStats",
    "explain",
)
_READ_BY_CONSUME: Final = (
    "subscriptions",
    "lastMessageId",
    "messageid",
    "getMessageIdByIndex",
    "ledger",
    "examinemessage",
    "messagesByKey",
    "allEntries",
)
"""Routes that describe or show messages."""
_OF_THE_OPERATOR: Final = (["resourcegroup"],)
"""Settings of a namespace that its own tenant must not change: they protect the other tenants."""
RATES: Final = frozenset(
    ("publishRate", "dispatchRate", "subscribeRate", "subscriptionDispatchRate", "replicatorDispatchRate")
)
"""Rates of namespaces and topics, with which an operator limits a tenant."""
_SPLIT: Final = ["split"]
"""Operations on a bundle, which places topics in the cluster; Pulsar leaves them to superusers too."""
_DOMAINS: Final = ("persistent", "non-persistent")
_OF_NAMESPACES: Final = {"functions": Action.FUNCTIONS, "packages": Action.PACKAGES}
"""Groups of version 3 and the right to them, which a namespace grants."""


def need(method: str, path: str) -> Need:
    """The right for a method and a path template."""
    reading = method in READING
    if path in _PUBLIC and reading:
        return Need(AccessScope.NOTHING)
    if (path in _FOR_ALL_ROLES and reading) or (path == SQL and method == "POST"):
        return Need(AccessScope.IDENTITY)
    if path == "/metrics" and reading:
        return Need(AccessScope.METRICS, Action.READ_METRICS)
    parts = path.strip("/").split("/")
    if parts[:3] == ["lookup", "v2", "topic"]:
        return Need(AccessScope.TOPIC, Action.LOOKUP)
    if parts[0] == "topics":
        return Need(AccessScope.TOPIC, Action.PRODUCE)
    if parts[:2] == ["admin", "v3"] and "{namespace}" in parts and parts[2] in _OF_NAMESPACES:
        return Need(AccessScope.NAMESPACE, _OF_NAMESPACES[parts[2]])
    if parts[:2] != ["admin", "v2"] or "{tenant}" not in parts:
        return Need(AccessScope.CLUSTER)
    tenant = Need(AccessScope.TENANT, Action.ADMINISTER_TENANT)
    group, rest = parts[2], parts[parts.index("{tenant}") + 1 :]
    if group == "tenants":
        return tenant if reading else Need(AccessScope.CLUSTER)
    if group == "schemas":
        return _schemas(method) or tenant
    if group == "namespaces" and not reading and (rest[1:2] in _OF_THE_OPERATOR or rest[-1:] == _SPLIT):
        return Need(AccessScope.CLUSTER)
    if not reading and not RATES.isdisjoint(rest):
        return Need(AccessScope.RATES)
    if group == "namespaces":
        found = Need(AccessScope.NAMESPACE, Action.LOOKUP) if reading and rest[1:] == ["topics"] else tenant
        return replace(found, of_namespace=bool(rest) and rest[1:2] != ["permissions"])
    if group in _DOMAINS:
        topics = _topics(reading=reading, rest=rest)
        if topics is None:
            # Creating and deleting topics is a right of the namespace.
            return replace(tenant, of_namespace=rest[2:] in ([], ["partitions"]))
        return replace(topics, domain=group, of_namespace=topics.scope is AccessScope.NAMESPACE)
    return Need(AccessScope.CLUSTER)


def _schemas(method: str) -> Need | None:
    if method in READING:
        return Need(AccessScope.TOPIC, Action.LOOKUP)
    return Need(AccessScope.TOPIC, Action.PRODUCE) if method == "POST" else None


def _topics(*, reading: bool, rest: list[str]) -> Need | None:
    """The right for a path about topics. `rest`: the parts of the path after the tenant."""
    if rest in (["{namespace}"], ["{namespace}", "partitioned"]):
        return Need(AccessScope.NAMESPACE, Action.LOOKUP) if reading else None
    if rest[:2] != ["{namespace}", "{topic}"]:
        return None
    if reading and rest[2:] == ["authorization"]:
        # For other roles the handler checks a further right.
        return Need(AccessScope.IDENTITY)
    if rest[2:3] == ["subscription"]:
        return Need(AccessScope.TOPIC, Action.CONSUME)
    if reading and len(rest) > 2 and rest[2] in _READ_BY_CONSUME:
        return Need(AccessScope.TOPIC, Action.CONSUME)
    if reading and len(rest) == 3 and rest[2] in _READ_BY_LOOKUP:
        return Need(AccessScope.TOPIC, Action.LOOKUP)
    return None


async def admit(guard: Guard, needed: Need, request: Request, params: Mapping[str, str]) -> Identity | None:
    """Checks the caller's right and returns its identity; None without authentication. Raises
    AuthenticationError, AuthorizationError, InvalidNameError."""
    if needed.scope is AccessScope.NOTHING:
        return None
    peer = peer_of(request)
    identity = await _identify(guard, request, peer)
    try:
        await _require(guard, needed, identity, peer, params)
    except AuthorizationError as error:
        if needed.unknown_first and not _shows_credentials(request):
            raise AuthenticationError(str(error)) from error
        raise
    return identity


def _shows_credentials(request: Request) -> bool:
    shown = request.scope.get("state", {}).get(STATE_CERTIFICATE_ROLE)
    return bool(shown or request.headers.get("authorization"))


async def _require(
    guard: Guard, needed: Need, identity: Identity, peer: str, params: Mapping[str, str]
) -> None:
    if needed.scope is AccessScope.CLUSTER:
        guard.require_superuser(identity, peer)
    elif needed.scope is AccessScope.RATES:
        await guard.require_rates(identity, peer, params["tenant"])
    elif needed.scope is AccessScope.METRICS:
        guard.require_metrics(identity, peer)
    elif needed.scope is AccessScope.TENANT:
        await guard.require_tenant(identity, peer, params["tenant"])
    elif needed.scope is AccessScope.NAMESPACE:
        namespace = NamespaceName.parse(f"{params['tenant']}/{params['namespace']}")
        await guard.require_namespace(identity, peer, needed.action, namespace)
    elif needed.scope is AccessScope.TOPIC:
        topic = TopicName.of(
            params.get("domain", needed.domain), params["tenant"], params["namespace"], params["topic"]
        )
        subscription = params.get("subscription", "")
        await guard.require_topic(identity, peer, needed.action, topic, subscription)


async def _identify(guard: Guard, request: Request, peer: str) -> Identity:
    """The identity of the caller. Raises AuthenticationError, as in Pulsar also for pairs of roles that may
    not act for each other."""
    try:
        credentials = _credentials(guard, request)
    except AuthenticationError as error:
        guard.refused_credentials(Credentials(""), peer, error)
        raise
    identity = await guard.identify(credentials, peer)
    original = request.headers.get(_ORIGINAL_HEADER, "")
    try:
        guard.check_original(identity, original, peer)
    except AuthorizationError as error:
        raise AuthenticationError(str(error)) from error
    if identity.role in guard.authentication.proxy_roles:
        return Identity(original, via=identity.role, proofs=identity.proofs)
    return identity


def note_change(identity: Identity | None, request: Request, body: bytes) -> None:
    """Writes a change and its caller to the audit log; publishing is not logged, because it is too
    frequent, and queries change nothing."""
    path = request.url.path
    if request.method not in READING and path != SQL and not path.startswith("/topics/"):
        changed(identity, peer_of(request), told_of_change(request.method, path, request.url.query, body))


def peer_of(request: Request) -> str:
    """Address of the client, for logs."""
    return f"{request.client.host}:{request.client.port}" if request.client else "?"


def address_of(request: Request) -> str:
    """Address of the client's machine, without the port."""
    return request.client.host if request.client else "?"


def _credentials(guard: Guard, request: Request) -> Credentials:
    role = request.scope.get("state", {}).get(STATE_CERTIFICATE_ROLE)
    return credentials_of(
        request.headers.get("authorization", ""),
        request.headers.get(_METHOD_HEADER, ""),
        certificate_role=role,
        takes_certificates=METHOD_TLS in guard.authentication.providers,
    )

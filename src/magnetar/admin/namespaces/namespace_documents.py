"""Reads the whole document with which a namespace is created; each part is read as by its own route.

So a part is refused if its route would refuse it. Values that Pulsar's own tools send for unset policies
(null, empty, false, -1) are dropped; other parts without effect here are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from magnetar.admin.access import permissions
from magnetar.admin.access.access import RATES
from magnetar.admin.calls.call import Call
from magnetar.admin.calls.coercion import LONG_BITS, as_choice, as_object, as_texts, as_whole
from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.namespaces import bundles
from magnetar.admin.namespaces.namespace_properties import PROPERTIES
from magnetar.admin.offload import offload
from magnetar.admin.policies import kinds, of_subscription, quotas
from magnetar.admin.policies.declared import Policy, PolicyKind
from magnetar.admin.policies.stored import N
from magnetar.admin.policies.table import ALL
from magnetar.admin.tenants.resource_groups import check_group
from magnetar.broker.limits.groups import GROUP_POLICY
from magnetar.broker.limits.limits import QUOTAS_OF_NAMESPACE
from magnetar.broker.policies.policies import Policies
from magnetar.tiered.policy import (
    LAG_OF_NAMESPACE,
    POLICIES,
    THRESHOLD_OF_NAMESPACE,
    THRESHOLD_S_OF_NAMESPACE,
)

_BUNDLES: Final = "bundles"
_GRANTS: Final = "auth_policies"
_MODE: Final = "subscription_auth_mode"
_BOUNDS: Final = ("boundaries", "numBundles")
"""Fields of documents of old paths, which hold only bundles."""
_UNSET: Final = (None, "", False, 0, -1, "None", "UNDEFINED", "AutoUpdateDisabled")
"""Values that mean "not set", besides empty lists and objects."""

_DECLARED: Final = {policy.namespace_key: policy for policy in ALL if policy.of_namespace is not None}
_OFFLOADING: Final = (THRESHOLD_OF_NAMESPACE, THRESHOLD_S_OF_NAMESPACE, LAG_OF_NAMESPACE)


async def read(call: Call) -> Policies:
    """The document of the body. Raises BadRequestError, PreconditionFailedError, UnsupportedError,
    AuthorizationError."""
    body = call.json_object()
    found: Policies = {_BUNDLES: bundles.wanted(body.get(_BUNDLES) or _first_generation(body))}
    for key, value in body.items():
        if key in (_BUNDLES, *_BOUNDS):
            continue
        reader = _OTHERS.get(key)
        if key in _DECLARED:
            await _allow(call, _DECLARED[key], value)
            part = _declared(call, _DECLARED[key], value)
        elif _is_unset(value):
            part = None
        elif reader is None:
            raise BadRequestError(f"the policy {key[:100]!r} has no effect here", remedy="leave it out")
        else:
            part = await reader(call, value)
        if part is not None:
            found[key] = part
    for key, policy in _DECLARED.items():
        if policy.check is not None and key in found:
            policy.check(found[key], {}, found)
    return found


async def _allow(call: Call, policy: Policy, value: object) -> None:
    """Asks for the right that the policy's own route needs. Raises AuthorizationError."""
    guard = call.broker.guard
    if policy.of_namespace not in RATES or _is_unset(value):
        return
    if guard is not None and call.identity is not None:
        await guard.require_rates(call.identity, call.peer, call.name("tenant"))


def _first_generation(body: Policies) -> Policies | None:
    return {name: body[name] for name in _BOUNDS if name in body} or None


def _is_unset(value: object) -> bool:
    return value in _UNSET or value in ([], {})


def _with(call: Call, value: object, name: str) -> Call:
    """The call for the route of a part."""
    return replace(call, body=json.dumps(value).encode(), path=f"{N}/{name}", query={})


def _declared(call: Call, policy: Policy, value: object) -> object:
    if value is None or value == -1 or value in ([], {}):
        return None
    if not policy.by_cluster:
        return _value(call, policy, policy.kind, value)
    by_cluster = as_object(value, what=policy.namespace_key) or {}
    read_of = {
        cluster: _value(call, policy, policy.kind, each)
        for cluster, each in by_cluster.items()
        if each is not None
    }
    return {cluster: each for cluster, each in read_of.items() if each is not None} or None


def _value(call: Call, policy: Policy, kind: PolicyKind, value: object) -> object:
    if value == policy.unset and isinstance(value, str):
        return None
    kind = kinds.BOOLEAN if kind is kinds.SWITCH else kind
    return kind.read(_with(call, value, str(policy.of_namespace)))


async def _quotas(call: Call, value: object) -> Policies:
    # Whether they suit what is retained is asked with the retention.
    document = as_object(value, what=QUOTAS_OF_NAMESPACE) or {}
    return {
        quotas.kind_of(kind): quotas.quota_of(_with(call, each, "backlogQuota"), None)
        for kind, each in document.items()
        if each is not None
    }


async def _grants(_: Call, value: object) -> Policies:
    document = as_object(value, what=_GRANTS) or {}
    found: Policies = {}
    for level, of_level in document.items():
        grants = as_object(of_level, what=level) or {}
        if level == "namespace_auth":
            found[level] = {role: permissions.actions_in(each) for role, each in grants.items()}
        elif level == "destination_auth":
            found[level] = {
                topic: {
                    role: permissions.actions_in(each)
                    for role, each in (as_object(roles, what=level) or {}).items()
                }
                for topic, roles in grants.items()
            }
        elif level == "subscription_auth_roles":
            found[level] = {name: sorted(as_texts(roles, what=level) or ()) for name, roles in grants.items()}
        elif grants:
            raise BadRequestError(f"{_GRANTS} have no {level[:100]!r}")
    return {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}, **found}


async def _mode(_: Call, value: object) -> str | None:
    return as_choice(value, permissions.MODES, what=_MODE)


async def _group(call: Call, value: object) -> str:
    guard = call.broker.guard
    if guard is not None and call.identity is not None:
        # A superuser is required, as by its own route: the group shares limits with other namespaces.
        guard.require_superuser(call.identity, call.peer)
    if not isinstance(value, str):
        raise BadRequestError(f"{GROUP_POLICY} must be a name")
    await check_group(call, value)
    return value


async def _properties(call: Call, value: object) -> dict[str, str]:
    return _with(call, value, PROPERTIES).json_strings()


async def _offload_policies(call: Call, value: object) -> Policies:
    return offload.read_policies(_with(call, value, "offloadPolicies"))


async def _offload_number(_: Call, value: object) -> int | None:
    return as_whole(value, bits=LONG_BITS, what="an offload threshold")


async def _clusters(call: Call, value: object) -> list[str]:
    return await of_subscription.only_this(_with(call, value, "replication"))


async def _allowed(call: Call, value: object) -> list[str]:
    return await of_subscription.allowed_of(_with(call, value, "allowedClusters"), {})


_OTHERS: Final[dict[str, Callable[[Call, object], Awaitable[object]]]] = {
    QUOTAS_OF_NAMESPACE: _quotas,
    _GRANTS: _grants,
    _MODE: _mode,
    GROUP_POLICY: _group,
    PROPERTIES: _properties,
    POLICIES: _offload_policies,
    **dict.fromkeys(_OFFLOADING, _offload_number),
    "replication_clusters": _clusters,
    "allowed_clusters": _allowed,
}

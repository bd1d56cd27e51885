"""`/admin/v2/resourcegroups` and `/admin/v2/resource-quotas`.

All topics of the namespaces that name a resource group share its rates. A resource quota is the expected load
of a bundle: a hint for a load balancer, which a single broker does not have.
"""

from __future__ import annotations

import json
from typing import Final

from magnetar.admin.calls.call import Call, Operation, Route, whole
from magnetar.admin.calls.errors import BadRequestError, NotHereError
from magnetar.base.names import NamespaceName, is_entity_name
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.limits.groups import GROUP_POLICY, NUMBERS
from magnetar.broker.policies.policies import Policies
from magnetar.metadata import keys

_G: Final = "/admin/v2/resourcegroups"
_Q: Final = "/admin/v2/resource-quotas"
_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup"
_SCHEMA: Final = {
    "type": "object",
    "properties": {number: {"type": "integer", "minimum": -1} for number in NUMBERS},
}
_QUOTA: Final = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100_000.0,
    "bandwidthOut": 300_000.0,
    "memory": 80.0,
    "dynamic": True,
}
"""Default quota of bundles, as in Pulsar."""


# -- groups ------------------------------------------------------------------------------------------


async def list_groups(call: Call) -> object:
    """Names of all groups."""
    return await call.broker.store.children(keys.RESOURCE_GROUPS)


async def get_group(call: Call) -> Policies:
    """Rates of a group."""
    found = await call.broker.policies.resource_group(call.name("group"))
    if found is None:
        raise NotHereError("ResourceGroup does not exist", remedy=f"there is no {call.params['group']}")
    return found


async def set_group(call: Call) -> None:
    """Creates a group, or changes the given rates."""
    body, numbers = call.json_object(), {}
    for name in NUMBERS:
        number = whole(body.get(name, -1)) if body.get(name) is not None else -1
        if number is None or not -1 <= number < 1 << 63:
            raise BadRequestError(f"{name} must be a number, -1 is without limit")
        if body.get(name) is not None:
            numbers[name] = number

    def change(document: Policies) -> None:
        document.update({**dict.fromkeys(NUMBERS, -1), **document, **numbers})

    await call.broker.policies.update_document(keys.resource_group(call.name("group")), change)
    await call.broker.apply_policies()


async def delete_group(call: Call) -> None:
    """Deletes a group that no namespace uses."""
    await get_group(call)
    name, policies = call.name("group"), call.broker.policies
    for tenant in await policies.tenants():
        for namespace in await policies.namespaces(tenant):
            if (await policies.namespace(NamespaceName.parse(namespace))).get(GROUP_POLICY) == name:
                raise PreconditionFailedError(f"namespace {namespace} uses resource group {name}")
    await call.broker.store.delete(keys.resource_group(name))


async def group_of_namespace(call: Call) -> object:
    """The group of a namespace."""
    return (await call.broker.policies.namespace(call.namespace())).get(GROUP_POLICY)


async def set_group_of_namespace(call: Call) -> None:
    """Puts a namespace into a group; in force on return."""
    await call.broker.policies.namespace(call.namespace())
    name = call.name("group")
    await check_group(call, name)
    await _put(call, name)


async def check_group(call: Call, name: str) -> None:
    """Raises PreconditionFailedError when there is no such group."""
    if not is_entity_name(name) or await call.broker.policies.resource_group(name) is None:
        raise PreconditionFailedError("ResourceGroup does not exist", remedy=f"there is no {name[:100]}")


async def remove_group_of_namespace(call: Call) -> None:
    """Takes a namespace out of its group."""
    await _put(call, None)


async def _put(call: Call, name: str | None) -> None:
    def change(document: Policies) -> None:
        document.pop(GROUP_POLICY, None)
        if name is not None:
            document[GROUP_POLICY] = name

    await call.broker.policies.update_namespace(call.namespace(), change)
    await call.broker.apply_policies()


# -- quotas ------------------------------------------------------------------------------------------


def _key(call: Call) -> str:
    if "tenant" not in call.params:
        return keys.resource_quota(None, "")
    return keys.resource_quota(call.namespace(), call.params["bundle"])


async def get_quota(call: Call) -> object:
    """Expected load of a bundle; without a bundle, the default."""
    if "tenant" in call.params:
        await call.broker.policies.namespace(call.namespace())
    policies = call.broker.policies
    own = await policies.fresh_document(_key(call))
    return own or await policies.fresh_document(keys.resource_quota(None, "")) or _QUOTA


async def set_quota(call: Call) -> None:
    """Sets the expected load of a bundle."""
    if "tenant" in call.params:
        await call.broker.policies.namespace(call.namespace())
    body = call.json_object()
    found: dict[str, object] = {}
    for name, default in _QUOTA.items():
        value = body.get(name, default)
        if name != "dynamic" and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
            raise BadRequestError(f"{name} must be a number, 0 or more")
        found[name] = value
    await call.broker.store.put(_key(call), json.dumps(found).encode())


async def remove_quota(call: Call) -> None:
    """Removes the expected load of a bundle: the default applies again."""
    await call.broker.policies.namespace(call.namespace())
    await call.broker.store.delete_recursive(_key(call))


ROUTES: list[Route] = [
    ("GET", _G, list_groups),
    ("GET", f"{_G}/{{group}}", Operation(get_group, answer=_SCHEMA)),
    ("PUT", f"{_G}/{{group}}", Operation(set_group, body=_SCHEMA)),
    ("DELETE", f"{_G}/{{group}}", delete_group),
    ("GET", _N, group_of_namespace),
    ("POST", f"{_N}/{{group}}", set_group_of_namespace),
    ("DELETE", _N, remove_group_of_namespace),
    ("GET", _Q, get_quota),
    ("POST", _Q, set_quota),
    ("GET", f"{_Q}/{{tenant}}/{{namespace}}/{{bundle}}", get_quota),
    ("POST", f"{_Q}/{{tenant}}/{{namespace}}/{{bundle}}", set_quota),
    ("DELETE", f"{_Q}/{{tenant}}/{{namespace}}/{{bundle}}", remove_quota),
]

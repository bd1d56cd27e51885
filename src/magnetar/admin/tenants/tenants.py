"""`/admin/v2/tenants`."""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Call, Operation, Route
from magnetar.admin.calls.coercion import LONG_BITS, as_whole
from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.namespaces.namespaces import delete_whole
from magnetar.base.names import NamespaceName
from magnetar.broker.errors import NamespaceNotFoundError, PreconditionFailedError
from magnetar.broker.limits.stored_bytes import STORED_BYTES_MAX, look_at
from magnetar.broker.policies.policies import Policies

_STORED: Final = "/admin/v2/tenants/{tenant}/storedBytes"
_STORED_SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "properties": {
        "limit": {"type": "integer", "description": "0: none"},
        "stored": {"type": "integer", "description": "0 without a limit, because it is not counted then"},
        "refusing": {"type": "boolean", "description": "whether its messages are refused"},
    },
}


async def list_tenants(call: Call) -> object:
    return await call.broker.policies.tenants()


async def get_tenant(call: Call) -> object:
    # As Pulsar's tenants are: the limit has a route of its own.
    return {key: value for key, value in (await _known(call)).items() if key != STORED_BYTES_MAX}


async def _known(call: Call) -> Policies:
    document = await call.broker.policies.tenant(call.name("tenant"))
    if document is None:
        raise NamespaceNotFoundError(
            "Tenant does not exist", remedy=f"there is no tenant {call.params['tenant']}"
        )
    return document


async def _document(call: Call) -> Policies:
    """The tenant in the body; without a body one that may use this cluster. Raises BadRequestError,
    PreconditionFailedError."""
    body = call.json()
    if body is None:
        return {"adminRoles": [], "allowedClusters": [call.broker.config.cluster]}
    if not isinstance(body, dict):
        raise BadRequestError("the body must be a JSON object")
    clusters = _names(body, "allowedClusters")
    if not clusters:
        raise PreconditionFailedError(
            "Clusters cannot be null"
            if body.get("allowedClusters") is None
            else "Clusters cannot be empty or blank",
            remedy="allowedClusters must name at least one cluster",
        )
    unknown = sorted(set(clusters) - set(await call.broker.policies.clusters()))
    if unknown:
        raise PreconditionFailedError("Clusters do not exist", remedy=f"there is no {', '.join(unknown)}")
    return {"adminRoles": _names(body, "adminRoles"), "allowedClusters": clusters}


def _names(body: Policies, key: str) -> list[str]:
    value = body.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadRequestError(f"{key} must be a list of names")
    return sorted(set(value))


async def create_tenant(call: Call) -> object:
    await call.broker.policies.create_tenant(call.name("tenant"), await _document(call))
    return None


async def update_tenant(call: Call) -> object:
    document = await _document(call)
    kept = {key: value for key, value in (await _known(call)).items() if key == STORED_BYTES_MAX}
    await call.broker.policies.update_tenant(call.name("tenant"), {**document, **kept})
    return None


async def delete_tenant(call: Call) -> object:
    """Deletes a tenant; with `force` its namespaces and their topics too."""
    tenant = call.name("tenant")
    async with call.broker.names.ending(tenant):
        if call.flag("force"):
            for namespace in await call.broker.policies.namespaces(tenant):
                await delete_whole(call.broker, NamespaceName.parse(namespace), force=True)
        await call.broker.policies.delete_tenant(tenant)
    return None


# -- bytes that it may store -------------------------------------------------------------------------


async def get_stored(call: Call) -> object:
    """Stored bytes of a tenant and their limit. Not a part of Pulsar's API."""
    await _known(call)
    tenant = call.name("tenant")
    # A caller that asks in a loop gets a count that is a second old at most.
    await look_at(call.broker, tenant, older_than_ms=1_000)
    mark = call.broker.stored.of(tenant)
    return {"limit": mark.limit, "stored": mark.stored, "refusing": bool(mark.refusal)}


async def set_stored_max(call: Call) -> None:
    """Sets the bytes that a tenant may store over all its topics; 0: no limit. In force on return."""
    limit = as_whole(call.json_given(), bits=LONG_BITS)
    if limit is None or limit < 0:
        raise PreconditionFailedError("the limit of stored bytes must be 0 or more", remedy="0: no limit")
    await _change_stored(call, limit)


async def remove_stored_max(call: Call) -> None:
    """Removes the limit: the setting `tenant_stored_bytes_max` applies again. In force on return."""
    await _change_stored(call, None)


async def _change_stored(call: Call, limit: int | None) -> None:
    document = {key: value for key, value in (await _known(call)).items() if key != STORED_BYTES_MAX}
    tenant = call.name("tenant")
    own = {} if limit is None else {STORED_BYTES_MAX: limit}
    await call.broker.policies.update_tenant(tenant, {**document, **own})
    await look_at(call.broker, tenant)


ROUTES: list[Route] = [
    ("GET", "/admin/v2/tenants", list_tenants),
    ("GET", "/admin/v2/tenants/{tenant}", get_tenant),
    ("PUT", "/admin/v2/tenants/{tenant}", create_tenant),
    ("POST", "/admin/v2/tenants/{tenant}", update_tenant),
    ("DELETE", "/admin/v2/tenants/{tenant}", delete_tenant),
    ("GET", _STORED, Operation(get_stored, answer=_STORED_SCHEMA)),
    ("POST", _STORED, Operation(set_stored_max, body={"type": "integer", "minimum": 0})),
    ("DELETE", _STORED, remove_stored_max),
]

"""`/admin/v2/tenants`."""

from __future__ import annotations

from magnetar.admin.call import Call, Route
from magnetar.admin.errors import BadRequestError
from magnetar.admin.namespaces import delete_whole
from magnetar.base.names import NamespaceName
from magnetar.broker.errors import NamespaceNotFoundError, PreconditionFailedError
from magnetar.broker.policies import Policies


async def list_tenants(call: Call) -> object:
    return await call.broker.policies.tenants()


async def get_tenant(call: Call) -> object:
    document = await call.broker.policies.tenant(call.name("tenant"))
    if document is None:
        raise NamespaceNotFoundError(
            "Tenant does not exist", remedy=f"there is no tenant {call.params['tenant']}"
        )
    return document


async def _document(call: Call) -> Policies:
    """The tenant that the body describes; without a body one that may use this cluster."""
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
    await call.broker.policies.update_tenant(call.name("tenant"), await _document(call))
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


ROUTES: list[Route] = [
    ("GET", "/admin/v2/tenants", list_tenants),
    ("GET", "/admin/v2/tenants/{tenant}", get_tenant),
    ("PUT", "/admin/v2/tenants/{tenant}", create_tenant),
    ("POST", "/admin/v2/tenants/{tenant}", update_tenant),
    ("DELETE", "/admin/v2/tenants/{tenant}", delete_tenant),
]

"""`magnetar tenants`."""

from __future__ import annotations

from typing import Final

import click

from magnetar.cli.verbs import Given, Verb, group

_ROLES: Final = click.Option(
    ["--admin-role", "roles"],
    multiple=True,
    help="Role that administers the tenant; may be repeated.  [none]",
)
_CLUSTERS: Final = click.Option(
    ["--cluster", "clusters"],
    multiple=True,
    default=("standalone",),
    help="Cluster that the tenant may use; may be repeated.  [standalone]",
)
_BYTES: Final = click.Option(
    ["--bytes", "limit_bytes"],
    type=click.IntRange(min=0),
    required=True,
    help="Bytes of stored messages, offloaded ones included; 0: no limit.",
)
_FORCE: Final = click.Option(["--force"], is_flag=True, help="Also delete its namespaces and their topics.")


def _body(given: Given) -> object:
    return {"adminRoles": list(given["roles"]), "allowedClusters": list(given["clusters"])}


VERBS: Final = (
    Verb(name="list", help="Show all tenants.", path="tenants", example="tenants list"),
    Verb(
        name="get", help="Show roles and clusters of TENANT.", path="{tenant}", example="tenants get orders"
    ),
    Verb(
        name="create",
        help="Create TENANT.",
        method="PUT",
        path="{tenant}",
        options=(_ROLES, _CLUSTERS),
        body=_body,
        done="tenant {tenant} is created",
        example="tenants create orders --admin-role ada",
    ),
    Verb(
        name="update",
        help="Replace roles and clusters of TENANT.",
        method="POST",
        path="{tenant}",
        options=(_ROLES, _CLUSTERS),
        body=_body,
        done="tenant {tenant} is changed",
        example="tenants update orders --admin-role ada --admin-role grace",
    ),
    Verb(
        name="stored",
        help="Show the bytes that TENANT stores, and its limit.",
        path="{tenant}/storedBytes",
        example="tenants stored orders",
    ),
    Verb(
        name="limit-stored",
        help="Limit the bytes that TENANT stores over all its topics; at the limit its producers are "
        "refused.",
        method="POST",
        path="{tenant}/storedBytes",
        options=(_BYTES,),
        body=lambda given: given["limit_bytes"],
        done="tenant {tenant} may store so much",
        example="tenants limit-stored orders --bytes 10000000000",
    ),
    Verb(
        name="unlimit-stored",
        help="Remove the limit of TENANT; the broker's setting applies again.",
        method="DELETE",
        path="{tenant}/storedBytes",
        done="the broker's setting holds for tenant {tenant}",
        example="tenants unlimit-stored orders",
    ),
    Verb(
        name="delete",
        help="Delete TENANT, which must be empty.",
        method="DELETE",
        path="{tenant}",
        options=(_FORCE,),
        query={"force": "force"},
        question="Delete tenant {tenant}?",
        done="tenant {tenant} is deleted",
        example="tenants delete orders",
    ),
)

tenants = group("tenants", "Tenants: teams on the cluster, with administrators and allowed clusters.", VERBS)

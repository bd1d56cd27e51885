"""`magnetar namespaces`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from magnetar.cli.namespaces.policies import NAMESPACE_POLICIES
from magnetar.cli.verbs import Verb, group

_FORCE: Final = click.Option(["--force"], is_flag=True, help="Also delete its topics and their messages.")
_ACTIONS: Final = click.Option(
    ["--action", "actions"],
    multiple=True,
    default=("produce", "consume"),
    help="produce, consume, functions, sources, sinks, packages; may be repeated.  [produce, consume]",
)


MODE: Final = click.Option(
    ["--mode"],
    type=click.Choice(["ALL", "PERSISTENT", "NON_PERSISTENT"]),
    default="ALL",
    help="Kind of topics to show.  [ALL]",
)
"""Option for the kind of topics that are listed."""


def _actions(given: Mapping[str, object]) -> object:
    actions = given["actions"]
    assert isinstance(actions, tuple), "an option that may be repeated"
    return list(actions)


def _created(given: Mapping[str, object]) -> object:
    return {"bundles": {"numBundles": given["bundles"]}} if given["bundles"] else None


VERBS: Final = (
    Verb(
        name="list",
        help="Show the namespaces of TENANT.",
        path="namespaces/{tenant_name}",
        example="namespaces list public",
    ),
    Verb(
        name="get",
        help="Show the stored policies of NAMESPACE.",
        path="{namespace}",
        example="namespaces get public/default -o yaml",
    ),
    Verb(
        name="create",
        help="Create NAMESPACE.",
        method="PUT",
        path="{namespace}",
        options=(
            click.Option(
                ["--bundles"],
                type=click.IntRange(1, 1024),
                help="Number of bundles, 1 to 1024: brokers share topics by bundle.  [4]",
            ),
        ),
        body=_created,
        done="namespace {namespace} is created",
        example="namespaces create public/orders",
    ),
    Verb(
        name="delete",
        help="Delete NAMESPACE, which must have no topics.",
        method="DELETE",
        path="{namespace}",
        options=(_FORCE,),
        query={"force": "force"},
        question="Delete namespace {namespace}?",
        done="namespace {namespace} is deleted",
        example="namespaces delete public/orders --force",
    ),
    Verb(
        name="topics",
        help="Show the topics of NAMESPACE, partitions by their own names.",
        path="{namespace}/topics",
        options=(MODE,),
        query={"mode": "mode"},
        example="namespaces topics public/default",
    ),
    Verb(
        name="bundles",
        help="Show the bundles of NAMESPACE.",
        path="{namespace}/bundles",
        example="namespaces bundles public/default",
    ),
    Verb(
        name="unload",
        help="Close the topics of NAMESPACE; clients reconnect automatically.",
        method="PUT",
        path="{namespace}/unload",
        done="the topics of {namespace} are closed",
        example="namespaces unload public/default",
    ),
    Verb(
        name="properties",
        help="Show the properties of NAMESPACE.",
        path="{namespace}/properties",
        example="namespaces properties public/default",
    ),
    Verb(
        name="set-property",
        help="Set the property KEY of NAMESPACE to VALUE; `canary` is true or false (docs/monitoring.md).",
        method="PUT",
        path="{namespace}/property/{key}/{value}",
        done="{key} of {namespace} is {value}",
        example="namespaces set-property public/default canary true",
    ),
    Verb(
        name="clear-backlog",
        help="Acknowledge everything for all subscriptions of NAMESPACE.",
        method="POST",
        path="{namespace}/clearBacklog",
        question="Skip everything of all subscriptions in {namespace}?",
        done="the backlogs of {namespace} are cleared",
        example="namespaces clear-backlog public/default",
    ),
    Verb(
        name="permissions",
        help="Show the permissions of roles in NAMESPACE.",
        path="{namespace}/permissions",
        example="namespaces permissions public/default",
    ),
    Verb(
        name="grant",
        help="Grant actions in NAMESPACE to ROLE.",
        method="POST",
        path="{namespace}/permissions/{role}",
        options=(_ACTIONS,),
        body=_actions,
        done="{role} may in {namespace}",
        example="namespaces grant public/default ada --action produce",
    ),
    Verb(
        name="revoke",
        help="Revoke all permissions of ROLE in NAMESPACE.",
        method="DELETE",
        path="{namespace}/permissions/{role}",
        question="Take all rights of {role} in {namespace} away?",
        done="{role} may nothing in {namespace}",
        example="namespaces revoke public/default ada",
    ),
)

namespaces = group(
    "namespaces", "Namespaces: topics that share policies and permissions.", VERBS, (NAMESPACE_POLICIES,)
)

"""Grants: decides whether a role may do an action.

A superuser may do everything. A role among a tenant's `adminRoles` may do everything within the tenant. Every
other role needs a grant of its namespace or topic:
    auth_policies.namespace_auth            {role: [action, ...]}
    auth_policies.destination_auth          {topic: {role: [action, ...]}}; a partition has its topic's
    auth_policies.subscription_auth_roles   {subscription: [role, ...]}: only these may consume with it
    subscription_auth_mode                  "Prefix": the subscription's name must begin with the role
Source: Pulsar's authorization provider and policies document.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]


class Action(enum.Enum):
    """An action on a topic, a namespace, or the cluster."""

    PRODUCE = "produce"
    CONSUME = "consume"
    LOOKUP = "lookup"
    """Looking up a topic and reading its schema: for roles that may produce or consume."""
    FUNCTIONS = "functions"
    """Everything about the functions of a namespace."""
    PACKAGES = "packages"
    """Everything about the packages of a namespace."""
    ADMINISTER_TENANT = "administer the tenant"
    ADMINISTER_CLUSTER = "administer the cluster"
    READ_METRICS = "read the metrics"


def may(
    role: str,
    action: Action,
    *,
    tenant: Document,
    namespace: Document,
    topic: str = "",
    subscription: str = "",
) -> bool:
    """Whether a role that is not a superuser may do the action. `tenant` and `namespace`: their policies
    documents, {} when they do not exist. `topic`: full name without a partition, "" for the namespace
    itself."""
    if action in (Action.ADMINISTER_CLUSTER, Action.READ_METRICS):
        return False
    if role in (tenant.get("adminRoles") or ()):
        return True
    if action is Action.ADMINISTER_TENANT:
        return False
    granted = _granted(role, namespace.get("auth_policies") or {}, topic)
    if action is Action.LOOKUP:
        return bool({"produce", "consume"} & granted)
    if action.value not in granted:
        return False
    return not subscription or _may_subscribe(role, namespace, subscription)


def _granted(role: str, policies: Document, topic: str) -> frozenset[str]:
    of_namespace = (policies.get("namespace_auth") or {}).get(role) or ()
    of_topic = ((policies.get("destination_auth") or {}).get(topic) or {}).get(role) or ()
    return frozenset((*of_namespace, *of_topic))


def _may_subscribe(role: str, namespace: Document, subscription: str) -> bool:
    policies = namespace.get("auth_policies") or {}
    roles = (policies.get("subscription_auth_roles") or {}).get(subscription)
    if roles and role not in roles:
        return False
    return namespace.get("subscription_auth_mode") != "Prefix" or subscription.startswith(role)

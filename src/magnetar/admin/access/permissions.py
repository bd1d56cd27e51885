"""Routes about grants: the roles that may produce, consume, or use a subscription.

All grants are in the namespace's policies, see `auth/permissions.py`. A change takes effect at once: clients
whose right was revoked are disconnected.

Source: Pulsar's admin API, its paths, bodies and status codes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from magnetar.admin.calls.call import Call, Handler, Route
from magnetar.admin.calls.errors import BadRequestError, NotHereError
from magnetar.base.names import NON_PERSISTENT, PERSISTENT, TopicName
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.policies.policies import Policies

_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_P: Final = f"{_N}/permissions"
_WORD: Final = "subscription"
"""Part of paths that may also be the name of a role or a subscription."""
_ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")
MODES: Final = ("None", "Prefix")


def _grants(document: Policies, level: str) -> dict[str, Any]:
    """The grants of one level in a policies document; changes apply to the document."""
    policies = document.get("auth_policies") or {}
    document["auth_policies"] = policies
    policies[level] = policies.get(level) or {}
    grants: dict[str, object] = policies[level]
    return grants


def actions_in(actions: object) -> list[str]:
    """The granted actions in a body. Raises BadRequestError."""
    if actions is None:
        raise BadRequestError("Actions should not be null", remedy=f"send a list of {', '.join(_ACTIONS)}")
    if not isinstance(actions, list) or not all(action in _ACTIONS for action in actions):
        raise BadRequestError(f"actions must be a list of {', '.join(_ACTIONS)}")
    return sorted(set(actions))


async def _of_namespace(call: Call, level: str) -> dict[str, object]:
    document = await call.broker.policies.namespace(call.namespace())
    return (document.get("auth_policies") or {}).get(level) or {}


# -- of a namespace ----------------------------------------------------------------------------------


async def permissions(call: Call) -> object:
    return await _of_namespace(call, "namespace_auth")


async def grant(call: Call) -> None:
    role, actions = call.params.get("role", _WORD), actions_in(call.json())

    def change(document: Policies) -> None:
        _grants(document, "namespace_auth")[role] = actions

    await call.broker.policies.update_namespace(call.namespace(), change)


async def revoke(call: Call) -> None:
    role = call.params.get("role", _WORD)

    def change(document: Policies) -> None:
        _grants(document, "namespace_auth").pop(role, None)

    await call.broker.policies.update_namespace(call.namespace(), change)


# -- of a topic --------------------------------------------------------------------------------------


async def topic_permissions(call: Call, topic: TopicName) -> object:
    """Roles with their actions on the topic, from its own grants and those of its namespace."""
    document = await call.broker.policies.namespace(topic.namespace_name)
    policies = document.get("auth_policies") or {}
    found: dict[str, set[str]] = {}
    own = (policies.get("destination_auth") or {}).get(str(topic.base)) or {}
    for grants in (policies.get("namespace_auth") or {}, own):
        for role, actions in grants.items():
            found.setdefault(role, set()).update(actions)
    return {role: sorted(actions) for role, actions in found.items()}


async def grant_topic(call: Call, topic: TopicName) -> None:
    role, actions = call.params["role"], actions_in(call.json())

    def change(document: Policies) -> None:
        _grants(document, "destination_auth").setdefault(str(topic.base), {})[role] = actions

    await call.broker.policies.update_namespace(topic.namespace_name, change)


async def revoke_topic(call: Call, topic: TopicName) -> None:
    """Raises PreconditionFailedError when the topic itself grants the role nothing."""
    role = call.params["role"]

    def change(document: Policies) -> None:
        of_topics = _grants(document, "destination_auth")
        own = of_topics.get(str(topic.base)) or {}
        if role not in own:
            raise PreconditionFailedError("permissions are not set at the topic level")
        del own[role]
        if not own:
            of_topics.pop(str(topic.base), None)

    await call.broker.policies.update_namespace(topic.namespace_name, change)


# -- of subscriptions --------------------------------------------------------------------------------


async def subscription_permissions(call: Call) -> object:
    return await _of_namespace(call, "subscription_auth_roles")


async def grant_subscription(call: Call) -> None:
    """Restricts the subscription to these roles; an empty list allows all roles with the right to consume."""
    subscription, roles = call.params["subscription"], call.json()
    if roles is None:
        raise BadRequestError("Roles should not be null", remedy="send a list of roles")
    if not isinstance(roles, list) or not all(isinstance(role, str) and role for role in roles):
        raise BadRequestError("the body must be a list of roles")

    def change(document: Policies) -> None:
        _grants(document, "subscription_auth_roles")[subscription] = sorted(set(roles))

    await call.broker.policies.update_namespace(call.namespace(), change)


async def revoke_subscription(call: Call) -> None:
    """Raises NotHereError when the subscription has no roles."""
    # If the subscription's name is the word of the path, the next part is the role.
    subscription, role = call.params["subscription"], call.params.get("role")
    if role is None:
        subscription, role = _WORD, subscription

    def change(document: Policies) -> None:
        roles = _grants(document, "subscription_auth_roles").get(subscription)
        if not roles:
            raise NotHereError(f"subscription {subscription} has no roles")
        roles[:] = [each for each in roles if each != role]

    await call.broker.policies.update_namespace(call.namespace(), change)


async def subscription_mode(call: Call) -> object:
    document = await call.broker.policies.namespace(call.namespace())
    return document.get("subscription_auth_mode") or MODES[0]


async def set_subscription_mode(call: Call) -> None:
    """With `Prefix`, the name of a subscription must begin with the role that uses it."""
    mode = call.json()
    if mode not in MODES:
        raise BadRequestError(f"the body must be one of {', '.join(MODES)}")

    def change(document: Policies) -> None:
        document["subscription_auth_mode"] = mode

    await call.broker.policies.update_namespace(call.namespace(), change)


def _of_topics(domain: str) -> list[Route]:
    path = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}/permissions"

    def of_topic(work: Callable[[Call, TopicName], Awaitable[object]]) -> Handler:
        async def handler(call: Call) -> object:
            names = (call.params[name] for name in ("tenant", "namespace", "topic"))
            return await work(call, TopicName.of(domain, *names))

        return handler

    return [
        ("GET", path, of_topic(topic_permissions)),
        ("POST", f"{path}/{{role}}", of_topic(grant_topic)),
        ("DELETE", f"{path}/{{role}}", of_topic(revoke_topic)),
    ]


ROUTES: list[Route] = [
    ("GET", _P, permissions),
    ("POST", f"{_P}/{{role}}", grant),
    ("DELETE", f"{_P}/{{role}}", revoke),
    ("GET", f"{_P}/{_WORD}", subscription_permissions),
    ("POST", f"{_P}/{_WORD}", grant),
    ("DELETE", f"{_P}/{_WORD}", revoke),
    ("POST", f"{_P}/{_WORD}/{{subscription}}", grant_subscription),
    ("DELETE", f"{_P}/{_WORD}/{{subscription}}", revoke_subscription),
    ("DELETE", f"{_P}/{{subscription}}/{{role}}", revoke_subscription),
    ("GET", f"{_N}/subscriptionAuthMode", subscription_mode),
    ("POST", f"{_N}/subscriptionAuthMode", set_subscription_mode),
    *_of_topics(PERSISTENT),
    *_of_topics(NON_PERSISTENT),
]

"""The matrix of roles and actions."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.auth.permissions import Action, may

TOPIC = "persistent://t/n/x"
TENANT = {"adminRoles": ["boss"]}
NAMESPACE: dict[str, Any] = {
    "auth_policies": {
        "namespace_auth": {"writer": ["produce"], "reader": ["consume"], "odd": ["functions"]},
        "destination_auth": {TOPIC: {"guest": ["produce", "consume"]}},
        "subscription_auth_roles": {"closed": ["reader-2"]},
    }
}
EVERYTHING = set(Action) - {Action.ADMINISTER_CLUSTER, Action.READ_METRICS}
ALLOWED = {
    "boss": EVERYTHING,
    "writer": {Action.PRODUCE, Action.LOOKUP},
    "reader": {Action.CONSUME, Action.LOOKUP},
    "guest": {Action.PRODUCE, Action.CONSUME, Action.LOOKUP},
    "odd": {Action.FUNCTIONS},
    "stranger": set(),
    "": set(),
}


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("role", ALLOWED)
def test_matrix(role: str, action: Action) -> None:
    allowed = may(role, action, tenant=TENANT, namespace=NAMESPACE, topic=TOPIC)
    assert allowed == (action in ALLOWED[role])


def test_a_topics_grant_is_the_topics_only() -> None:
    for topic in ("persistent://t/n/y", ""):
        assert not may("guest", Action.PRODUCE, tenant=TENANT, namespace=NAMESPACE, topic=topic)


@pytest.mark.parametrize("documents", [({}, {}), ({"adminRoles": None}, {"auth_policies": None})])
def test_what_does_not_exist_grants_nothing(documents: tuple[Any, Any]) -> None:
    for action in Action:
        assert not may("boss", action, tenant=documents[0], namespace=documents[1], topic=TOPIC)


def test_subscriptions() -> None:
    def consume(role: str, subscription: str, **more: Any) -> bool:
        return may(
            role,
            Action.CONSUME,
            tenant=TENANT,
            namespace={**NAMESPACE, **more},
            topic=TOPIC,
            subscription=subscription,
        )

    assert consume("reader", "any")
    assert not consume("reader", "closed")
    assert not consume("reader-2", "closed"), "a subscription's role needs the right to consume too"
    assert consume("boss", "closed")
    assert consume("reader", "reader-1", subscription_auth_mode="Prefix")
    assert not consume("reader", "other", subscription_auth_mode="Prefix")

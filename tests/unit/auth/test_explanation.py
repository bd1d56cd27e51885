"""Explanations say the same as the rules themselves, and what would help does help."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.auth.explanation import Question, explain
from magnetar.auth.permissions import Action, may

TOPIC = "persistent://t/n/x"
ROLES = st.sampled_from(["ada", "bob", "ada-more"])
ACTIONS = st.lists(st.sampled_from(["produce", "consume", "functions"]), unique=True)
NAMESPACES = st.fixed_dictionaries(
    {},
    optional={
        "auth_policies": st.fixed_dictionaries(
            {},
            optional={
                "namespace_auth": st.dictionaries(ROLES, ACTIONS),
                "destination_auth": st.dictionaries(st.just(TOPIC), st.dictionaries(ROLES, ACTIONS)),
                "subscription_auth_roles": st.dictionaries(
                    st.sampled_from(["s", "ada-s"]), st.lists(ROLES, unique=True)
                ),
            },
        ),
        "subscription_auth_mode": st.sampled_from(["None", "Prefix"]),
    },
)
TENANTS = st.fixed_dictionaries({}, optional={"adminRoles": st.lists(ROLES, unique=True)})


@settings(max_examples=200, deadline=None)
@given(
    ROLES, st.sampled_from(Action), st.sampled_from(["", "s", "ada-s"]), TENANTS, NAMESPACES, st.sets(ROLES)
)
def test_it_is_what_the_rules_say(
    role: str, action: Action, subscription: str, tenant: Any, namespace: Any, superusers: set[str]
) -> None:
    question = Question(role=role, action=action, namespace="t/n", topic=TOPIC, subscription=subscription)
    found = explain(
        question, superusers=frozenset(superusers), tenant=tenant, namespace=namespace, names=True
    )
    allowed = role in superusers or may(
        role, action, tenant=tenant, namespace=namespace, topic=TOPIC, subscription=subscription
    )
    assert found.allowed == allowed
    assert found.reason
    assert bool(found.remedy) == (not allowed)


def test_a_missing_grant_is_named_with_the_call_that_gives_it() -> None:
    namespace = {"auth_policies": {"namespace_auth": {"ada": ["produce"]}}}
    question = Question(role="ada", action=Action.CONSUME, namespace="t/n", topic=TOPIC)
    found = explain(question, superusers=frozenset(), tenant={}, namespace=namespace, names=True)
    assert [(rule.name, rule.granted) for rule in found.rules] == [
        ("superuser", False),
        ("tenant administrator", False),
        ("namespace grant", False),
        ("topic grant", False),
    ]
    assert found.rules[2].detail == "namespace t/n grants it produce, not consume"
    # A grant replaces what was granted: the call must not take the other right away.
    words = shlex.split(found.remedy)
    assert words[:5] == ["magnetar", "namespaces", "grant", "t/n", "ada"]
    assert words[5:] == ["--action", "consume", "--action", "produce"]


@pytest.mark.parametrize(
    ("policies", "mode", "rule"),
    [({"s": ["bob"]}, "None", "subscription roles"), ({}, "Prefix", "subscription prefix")],
)
def test_a_subscription_may_ask_for_more(policies: dict[str, list[str]], mode: str, rule: str) -> None:
    namespace = {
        "auth_policies": {"namespace_auth": {"ada": ["consume"]}, "subscription_auth_roles": policies},
        "subscription_auth_mode": mode,
    }
    question = Question(role="ada", action=Action.CONSUME, namespace="t/n", topic=TOPIC, subscription="s")
    found = explain(question, superusers=frozenset(), tenant={}, namespace=namespace, names=True)
    assert (found.allowed, found.rules[-1].name, found.rules[-1].granted) == (False, rule, False)

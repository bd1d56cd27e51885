"""Explains why a role may or may not do an action: the rules of `permissions.py`, each with its result.

The rules are listed in the order in which they are tried. The first that grants decides; when none does, the
remedy of the last one is the call that an administrator would make. `permissions.may` decides, this module
only explains, and a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.auth.permissions import Action, Document


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule and its result."""

    name: str
    """`superuser`, `tenant administrator`, `namespace grant`, `topic grant`, `subscription roles` or
    `subscription prefix`."""
    granted: bool
    """Whether the rule grants the action; for a condition on subscriptions, whether it is met."""
    detail: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer with its reasons."""

    allowed: bool
    reason: str
    rules: tuple[Rule, ...]
    remedy: str = ""
    """The command that would allow the action; "" when it is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A role, an action and a topic, to be explained."""

    role: str
    action: Action
    namespace: str
    """`tenant/namespace`."""
    topic: str
    """Full name, without a partition."""
    subscription: str = ""
    """Name of the subscription; "" for none in particular."""


def explain(
    question: Question, *, superusers: frozenset[str], tenant: Document, namespace: Document, names: bool
) -> Explanation:
    """Explains the answer to a question. `tenant` and `namespace`: their policies documents, {} when they do
    not exist. `names`: whether the explanation may name other roles than the question's."""
    role, tenant_name = question.role, question.namespace.partition("/")[0]
    rules = [_listed("superuser", role, superusers, "the setting superuser_roles")]
    if question.action not in (Action.ADMINISTER_CLUSTER, Action.READ_METRICS):
        where = f"adminRoles of tenant {tenant_name}"
        rules.append(_listed("tenant administrator", role, tenant.get("adminRoles") or (), where))
    for rule in rules:
        if rule.granted:
            return Explanation(True, rule.detail, tuple(rules))
    if question.action in (Action.ADMINISTER_TENANT, Action.ADMINISTER_CLUSTER, Action.READ_METRICS):
        # The call replaces the list, so it must name the present roles too.
        others = tenant.get("adminRoles") or () if names else ("...",)
        roles = " ".join(f"--admin-role {each}" for each in (*others, role))
        remedy = f"magnetar tenants update {tenant_name} {roles}"
        if question.action is not Action.ADMINISTER_TENANT:
            remedy = f"add {role} to superuser_roles in the broker's settings and start it again"
        return Explanation(False, f"only administrators may {question.action.value}", tuple(rules), remedy)
    rules += _grants(question, namespace)
    grant = next((rule for rule in rules if rule.granted), None)
    if grant is None:
        return Explanation(
            False,
            f"no grant of {_words(question.action)} reaches role {role}",
            tuple(rules),
            _grant_call(question, namespace),
        )
    return _with_subscription(question, namespace, rules, grant, names=names)


def _listed(name: str, role: str, roles: frozenset[str] | tuple[str, ...] | list[str], where: str) -> Rule:
    granted = role in roles
    return Rule(name, granted, f"role {role} is {'' if granted else 'not '}in {where}")


def _grant_call(question: Question, namespace: Document) -> str:
    """The command for the missing grant. A grant replaces the one before, so the command repeats its
    actions."""
    policies = namespace.get("auth_policies") or {}
    has = (policies.get("namespace_auth") or {}).get(question.role) or ()
    wanted = "consume" if question.action is Action.LOOKUP else question.action.value
    actions = " ".join(f"--action {action}" for action in sorted({*has, wanted}))
    return f"magnetar namespaces grant {question.namespace} {question.role} {actions}"


def _words(action: Action) -> str:
    return "produce or consume" if action is Action.LOOKUP else action.value


def _grants(question: Question, namespace: Document) -> list[Rule]:
    policies = namespace.get("auth_policies") or {}
    found = []
    for name, where, grants in (
        ("namespace grant", f"namespace {question.namespace}", policies.get("namespace_auth") or {}),
        (
            "topic grant",
            f"topic {question.topic}",
            (policies.get("destination_auth") or {}).get(question.topic) or {},
        ),
    ):
        actions = grants.get(question.role) or ()
        if question.action is Action.LOOKUP:
            granted = "produce" in actions or "consume" in actions
        else:
            granted = question.action.value in actions
        has = f"grants it {', '.join(sorted(actions))}" if actions else "grants it nothing"
        missing = "" if granted or not actions else f", not {_words(question.action)}"
        found.append(Rule(name, granted, f"{where} {has}{missing}"))
    return found


def _with_subscription(
    question: Question, namespace: Document, rules: list[Rule], grant: Rule, *, names: bool
) -> Explanation:
    """The explanation when a grant exists: adds the conditions on subscriptions."""
    subscription, role = question.subscription, question.role
    if question.action is not Action.CONSUME or not subscription:
        return Explanation(True, grant.detail, tuple(rules))
    policies = namespace.get("auth_policies") or {}
    roles = (policies.get("subscription_auth_roles") or {}).get(subscription) or ()
    if roles:
        inside = role in roles
        whom = ", ".join(sorted(roles)) if names else "certain roles"
        detail = f"subscription {subscription} is for {whom} only"
        rules.append(Rule("subscription roles", inside, detail))
        if not inside:
            remedy = f"add {role} to the roles of the subscription (docs/security.md), or use another one"
            return Explanation(False, detail, tuple(rules), remedy)
    if namespace.get("subscription_auth_mode") == "Prefix":
        fits = subscription.startswith(role)
        detail = f"in {question.namespace} a subscription's name must begin with its role"
        rules.append(Rule("subscription prefix", fits, detail))
        if not fits:
            remedy = f"name the subscription {role}-{subscription}"
            return Explanation(False, detail, tuple(rules), remedy)
    return Explanation(True, grant.detail, tuple(rules))

"""`.../authorization`: whether a role may do something with a topic, and which rule says so.

Every role may ask about itself; administrators of the tenant may ask about other roles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Final

from magnetar.admin.calls.call import Call, Handler, Route
from magnetar.admin.calls.errors import BadRequestError
from magnetar.auth.explanation import Explanation, Question, explain
from magnetar.auth.permissions import Action
from magnetar.base.names import NON_PERSISTENT, PERSISTENT, TopicName

ACTIONS: Final = {
    "produce": Action.PRODUCE,
    "consume": Action.CONSUME,
    "lookup": Action.LOOKUP,
    "administer": Action.ADMINISTER_TENANT,
}
"""Actions by their names in the query."""


async def answer(call: Call, topic: TopicName) -> dict[str, object]:
    """Whether `?role=` may do `?action=` with the topic, with the rule that grants it or the missing
    grant."""
    action = ACTIONS.get(call.query.get("action", ""))
    if action is None:
        raise BadRequestError(f"action must be one of {', '.join(ACTIONS)}")
    guard = call.broker.guard
    role = call.query.get("role") or (call.identity.role if call.identity else "")
    question = {"role": role, "action": call.query["action"], "topic": str(topic.base)}
    if guard is None:
        reason = "this broker has no authentication: every client may do everything"
        return {**question, **asdict(Explanation(True, reason, ()))}
    if not guard.authorizes:
        reason = "authorization is off: every authenticated client may do everything"
        return {**question, **asdict(Explanation(True, reason, ()))}
    if not role:
        raise BadRequestError("name a role")
    if call.identity is not None and role != call.identity.role:
        await guard.require_tenant(call.identity, call.peer, topic.tenant)
    names = call.identity is None or await guard.may_namespace(
        call.identity, Action.ADMINISTER_TENANT, topic.namespace_name
    )
    asked = Question(
        role=role,
        action=action,
        namespace=str(topic.namespace_name),
        topic=str(topic.base),
        subscription=call.query.get("subscription", ""),
    )
    tenant, namespace = await guard.documents(topic.namespace_name)

    def explained(of: str) -> Explanation:
        return explain(
            replace(asked, role=of),
            superusers=guard.superuser_roles,
            tenant=tenant,
            namespace=namespace,
            names=names,
        )

    found = explained(role)
    if call.identity is not None and role == call.identity.role:
        # A question about its own credential: all roles count that count for its calls, also those of a
        # proxy, and those that have changed a function beside its owner.
        found = _of_speakers(call.identity.speakers, explained)
    return {**question, **asdict(found)}


def _of_speakers(
    speakers: tuple[tuple[str, ...], ...], explained: Callable[[str], Explanation]
) -> Explanation:
    """In each tuple one role must have the right: why the first has it, or why those of a tuple do not."""
    found: list[Explanation] = []
    for roles in speakers:
        answers = [explained(role) for role in roles]
        found.append(next((each for each in answers if each.allowed), answers[0]))
    return next((each for each in found if not each.allowed), found[0])


def _of(domain: str) -> Handler:
    async def authorization(call: Call) -> object:
        """Whether a role may produce, consume, look up or administer, and why."""
        params = call.params
        return await answer(
            call, TopicName.of(domain, params["tenant"], params["namespace"], params["topic"])
        )

    return authorization


ROUTES: list[Route] = [
    ("GET", f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}/authorization", _of(domain))
    for domain in (PERSISTENT, NON_PERSISTENT)
]

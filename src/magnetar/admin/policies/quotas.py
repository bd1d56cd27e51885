"""Backlog quotas of namespaces and topics: one by size and one by age."""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Call, Operation, Route
from magnetar.admin.calls.coercion import INT_BITS, LONG_BITS, as_choice, as_object, as_whole
from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.policies.stored import TOPIC_QUERY, N, T, change_namespace, change_topic, own_of
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.limits.backlog import QuotaKind, QuotaPolicy, fits_retention
from magnetar.broker.limits.limits import QUOTAS_OF_NAMESPACE, QUOTAS_OF_TOPIC
from magnetar.broker.policies.policies import Policies

_NUMBER: Final = {"type": "integer", "minimum": -1}
_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "limitSize": _NUMBER,
        "limitTime": _NUMBER,
        "policy": {"type": "string", "enum": list(QuotaPolicy)},
    },
    "required": ["policy"],
}
_MAP: Final = {"type": "object", "additionalProperties": _SCHEMA}
_QUERY: Final = ("backlogQuotaType",)


def kind_of(text: str) -> QuotaKind:
    """The kind of quota in the query. Raises BadRequestError."""
    try:
        return QuotaKind(text)
    except ValueError:
        raise BadRequestError(f"backlogQuotaType must be one of {', '.join(QuotaKind)}") from None


def _kind(call: Call) -> QuotaKind:
    return kind_of(call.query.get("backlogQuotaType", QuotaKind.SIZE))


def quota_of(call: Call, retention: Policies | None) -> dict[str, object] | None:
    """The quota in the body, which must fit the retention; None removes it. Raises BadRequestError,
    PreconditionFailedError."""
    document = as_object(call.json())
    if document is None:
        return None
    given = {"limitSize": document.get("limitSize", document.get("limit"))}
    given["limitTime"] = document.get("limitTime")
    numbers: dict[str, int] = {}
    for name, value in given.items():
        bits = LONG_BITS if name == "limitSize" else INT_BITS
        number = as_whole(value, bits=bits, what=name)
        # Pulsar's 0, for what is not said, would let nothing in.
        numbers[name] = -1 if number is None else max(-1, number)
    policy = as_choice(document.get("policy"), list(QuotaPolicy), what="policy")
    level = f"topic[{call.params['topic']}]" if "topic" in call.params else f"namespace[{call.namespace()}]"
    if policy is None:
        raise BadRequestError(
            f"Set {level} backlog quota failed because the data validation failed."
            " the attribute policy cannot be null",
            remedy=f"it is one of {', '.join(QuotaPolicy)}",
        )
    if not fits_retention(numbers, retention):
        raise PreconditionFailedError(
            f"Backlog Quota exceeds configured retention quota for {level.partition('[')[0]}."
            " Please increase retention quota and retry"
        )
    return {**numbers, "policy": policy}


async def _namespace_quotas(call: Call) -> object:
    return (await call.broker.policies.namespace(call.namespace())).get(QUOTAS_OF_NAMESPACE) or {}


async def _put_namespace_quota(call: Call) -> None:
    document = await call.broker.policies.namespace(call.namespace())
    kind, quota = _kind(call), quota_of(call, document.get("retention_policies"))
    await change_namespace(call, lambda found: _put_quota(found, QUOTAS_OF_NAMESPACE, kind, quota))


async def _delete_namespace_quota(call: Call) -> None:
    kind = _kind(call)
    await change_namespace(call, lambda found: _put_quota(found, QUOTAS_OF_NAMESPACE, kind, None))


async def _topic_quotas(call: Call) -> object:
    if not call.flag("applied"):
        return (await own_of(call)).get(QUOTAS_OF_TOPIC) or {}
    topic = call.topic()
    document = await call.broker.policies.namespace(topic.namespace_name)
    own = await call.broker.policies.topic_policies(topic)
    return {**(document.get(QUOTAS_OF_NAMESPACE) or {}), **(own.get(QUOTAS_OF_TOPIC) or {})}


async def _put_topic_quota(call: Call) -> None:
    topic = call.topic()
    own = await call.broker.policies.topic_policies(topic)
    inherited = await call.broker.policies.namespace(topic.namespace_name)
    retention = own.get("retention_policies", inherited.get("retention_policies"))
    kind, quota = _kind(call), quota_of(call, retention)
    await change_topic(call, lambda found: _put_quota(found, QUOTAS_OF_TOPIC, kind, quota))


async def _delete_topic_quota(call: Call) -> None:
    kind = _kind(call)
    await change_topic(call, lambda found: _put_quota(found, QUOTAS_OF_TOPIC, kind, None))


def _put_quota(document: Policies, key: str, kind: QuotaKind, quota: dict[str, object] | None) -> None:
    quotas = {known: value for known, value in (document.get(key) or {}).items() if known != kind}
    document[key] = quotas if quota is None else {**quotas, kind.value: quota}


ROUTES: list[Route] = [
    ("GET", f"{N}/backlogQuotaMap", Operation(_namespace_quotas, answer=_MAP)),
    ("POST", f"{N}/backlogQuota", Operation(_put_namespace_quota, body=_SCHEMA, query=_QUERY)),
    ("DELETE", f"{N}/backlogQuota", Operation(_delete_namespace_quota, query=_QUERY)),
    ("GET", f"{T}/backlogQuotaMap", Operation(_topic_quotas, answer=_MAP, query=TOPIC_QUERY)),
    ("POST", f"{T}/backlogQuota", Operation(_put_topic_quota, body=_SCHEMA, query=_QUERY)),
    ("DELETE", f"{T}/backlogQuota", Operation(_delete_topic_quota, query=_QUERY)),
]

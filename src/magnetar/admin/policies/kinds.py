"""Types of policy values that are not objects.

A value that reads as None removes the policy. JSON's null is 0 or false where Pulsar's method takes a Java
primitive, and None where it takes an object (`OPTIONAL_…`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar.admin.calls.call import Call
from magnetar.admin.calls.coercion import INT_BITS, LONG_BITS, as_boolean, as_choice, as_whole
from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.policies.declared import PolicyKind
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.policies.schema_rules import AUTO_UPDATE_STRATEGIES
from magnetar.schemas.compatibility import Strategy
from magnetar.tiered.policy import MAX_AGE_LEAST_S, is_max_age

_BOOLEAN: Final = {"type": "boolean"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
"""Types of subscriptions, in Pulsar's order."""


def limit(
    refusal: str = "{} must be 0 or more", *, bits: int = INT_BITS, optional: bool = False
) -> PolicyKind:
    """A number >= 0. `refusal`: error text for numbers below 0; `{}` is the last part of the path."""

    def read(call: Call) -> int | None:
        value = as_whole(call.json() if optional else call.json_given(), bits=bits)
        if value is None:
            return None if optional else 0
        if value < 0:
            raise PreconditionFailedError(refusal.format(call.policy), remedy="0 is without limit")
        return value

    return PolicyKind(read, _COUNT)


def _max_age(call: Call) -> int:
    value = as_whole(call.json_given()) or 0
    if not is_max_age(value):
        raise PreconditionFailedError(
            f"{call.policy} must be 0 or at least {MAX_AGE_LEAST_S}",
            remedy="seconds; 0 is without a maximum age",
        )
    return value


def _message_size(call: Call) -> int:
    value, most = as_whole(call.json_given()) or 0, call.broker.config.message_bytes_max
    if not 0 <= value <= most:
        raise PreconditionFailedError(
            "topic-level maxMessageSize must be greater than or equal to 0"
            " and must be smaller than that in the broker-level",
            remedy=f"the broker takes {most} bytes",
        )
    return value


_NO_TTL: Final = "Invalid value for message TTL, message TTL must >= 0"


def _topic_ttl(call: Call) -> int | None:
    """The TTL in the query, where Pulsar's clients send it, or in the body."""
    text = call.query.get("messageTTL")
    value = as_whole(call.json() if text is None else text, what="messageTTL")
    if value is not None and value < 0:
        raise PreconditionFailedError(_NO_TTL, remedy="0 is without limit")
    return value


def _types(call: Call) -> list[str]:
    value = call.json()
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequestError("the body must be a list of subscription types")
    found = {as_choice(_spelled(each), _TYPES, what="the list of types") for each in value}
    if None in found:
        raise BadRequestError("null is not a subscription type")
    return sorted(each for each in found if each is not None)


def _spelled(value: object) -> object:
    return "Key_Shared" if value == "KeyShared" else value


def _always(_: Call) -> bool:
    """A switch that a call without a body turns on."""
    return True


def _one_of(names: Sequence[str]) -> PolicyKind:
    return PolicyKind(lambda call: as_choice(call.json(), names), {"type": "string", "enum": list(names)})


BOOLEAN: Final = PolicyKind(lambda call: call.json_bool(), _BOOLEAN)
OPTIONAL_BOOLEAN: Final = PolicyKind(lambda call: as_boolean(call.json()), _BOOLEAN)
SWITCH: Final = PolicyKind(_always, _BOOLEAN)
NUMBER: Final = limit()
BYTES: Final = limit(bits=LONG_BITS)
BYTES_OF_TOPIC: Final = limit("Invalid value for {}", bits=LONG_BITS)
OPTIONAL_UNACKED: Final = limit("maxUnackedNum must be 0 or more", optional=True)
MESSAGE_SIZE: Final = PolicyKind(_message_size, _COUNT)
MAX_AGE: Final = PolicyKind(_max_age, _COUNT)
TTL: Final = limit(_NO_TTL)
TTL_OF_TOPIC: Final = PolicyKind(_topic_ttl, _COUNT)
EXPIRATION: Final = limit("Invalid value for subscription expiration time")
CONSUMERS_OF_TOPIC: Final = limit("Invalid value for {}")
INTERVAL: Final = limit("interval must be greater than or equal to 0", optional=True)
INTERVAL_OF_TOPIC: Final = limit("interval must be 0 or more", optional=True)
TYPES: Final = PolicyKind(_types, {"type": "array", "items": {"type": "string", "enum": sorted(_TYPES)}})
STRATEGY: Final = _one_of([strategy.value for strategy in Strategy])
AUTO_UPDATE_STRATEGY: Final = _one_of(list(AUTO_UPDATE_STRATEGIES))

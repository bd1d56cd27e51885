"""Types of policy values that are objects, with the defaults of their fields.

A missing field has the default of Pulsar's own class; checks and their error texts are Pulsar's too.
"""

from __future__ import annotations

from typing import Any, Final

from magnetar.admin.calls.call import Call
from magnetar.admin.calls.coercion import (
    INT_BITS,
    LONG_BITS,
    as_boolean,
    as_choice,
    as_decimal,
    as_object,
    as_text,
    as_whole,
)
from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.policies.declared import PolicyKind
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.filters.rules import FILTER_NAMES, names_in
from magnetar.broker.inactive.policy import DeleteMode
from magnetar.broker.limits.limits import DELAY_MAX
from magnetar.broker.policies.creation import NON_PARTITIONED, PARTITIONED, PARTITIONS_MAX
from magnetar.broker.policies.topic_settings import COPIES

Fields = dict[str, Any]

_WHOLE: Final = {"type": "integer"}
_BOOLEAN: Final = {"type": "boolean"}


def schema(properties: Fields, *required: str) -> Fields:
    """JSON schema of an object."""
    found: Fields = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


def whole_of(document: Fields, name: str, default: int = 0, *, bits: int = INT_BITS) -> int:
    """A number of a document; null is 0. Raises BadRequestError."""
    if name not in document:
        return default
    return as_whole(document[name], bits=bits, what=name) or 0


def flag_of(document: Fields, name: str) -> bool:
    """A switch of a document. Raises BadRequestError."""
    return as_boolean(document.get(name), what=name) or False


# -- rates -------------------------------------------------------------------------------------------


def _rate(**fields: tuple[int, int]) -> PolicyKind:
    """A rate. `fields`: bits and default of each number."""

    def read(call: Call) -> Fields | None:
        document = as_object(call.json())
        if document is None:
            return None
        found: Fields = {
            name: whole_of(document, name, default, bits=bits) for name, (bits, default) in fields.items()
        }
        if "dispatchThrottlingRateInMsg" in fields:
            found["relativeToPublishRate"] = flag_of(document, "relativeToPublishRate")
        return found

    return PolicyKind(read, schema(dict.fromkeys(fields, _WHOLE)))


DISPATCH: Final = _rate(
    dispatchThrottlingRateInMsg=(INT_BITS, 0),
    dispatchThrottlingRateInByte=(LONG_BITS, 0),
    ratePeriodInSecond=(INT_BITS, 0),
)
PUBLISH: Final = _rate(publishThrottlingRateInMsg=(INT_BITS, -1), publishThrottlingRateInByte=(LONG_BITS, -1))
SUBSCRIBE: Final = _rate(subscribeThrottlingRatePerConsumer=(INT_BITS, -1), ratePeriodInSecond=(INT_BITS, 30))


# -- what stays --------------------------------------------------------------------------------------


def _retention(call: Call) -> Fields | None:
    document = as_object(call.json())
    if document is None:
        return None
    limits = {name: whole_of(document, name) for name in ("retentionTimeInMinutes", "retentionSizeInMB")}
    minutes, mib = limits.values()
    wrong = ""
    if minutes < -1:
        wrong = "time limit must be >= -1"
    elif mib < -1:
        wrong = "size limit must be >= -1"
    elif (minutes == 0) != (mib == 0):
        wrong = (
            "Setting a single time or size limit to 0 is invalid when one of the limits has a non-zero value."
            " Use the value of -1 instead of 0 to ignore a specific limit. To disable retention both limits"
            " must be set to 0."
        )
    if wrong:
        raise BadRequestError(f"Invalid retention policy: {wrong}")
    return limits


_MARK_RATE: Final = "managedLedgerMaxMarkDeleteRate"
_COPIES_MAX: Final = 5
"""Most copies, as in Pulsar's check."""
_COPIES_SAID: Final = ("Bookkeeper-Ensemble", "Bookkeeper-WriteQuorum", "Bookkeeper-AckQuorum")


def _persistence(call: Call) -> Fields:
    document = as_object(call.json())
    if document is None:
        raise BadRequestError("persistence policies should not be null")
    told = call.broker.config.copies
    defaults = told or (1, 1, 1)
    found: Fields = {
        name: whole_of(document, name, default)
        for name, default in zip(COPIES, (defaults[0], defaults[1], defaults[2]), strict=True)
    }
    ensemble, written, acknowledged = found.values()
    for said, number in zip(_COPIES_SAID, found.values(), strict=True):
        if not 0 < number <= _COPIES_MAX:
            raise BadRequestError(f"{said} must be <= {_COPIES_MAX} and > 0.")
    if not ensemble >= written >= acknowledged:
        raise BadRequestError(
            f"Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({written}) >= AckQuorum ({acknowledged})",
            remedy="each must be at most the one before it",
        )
    if told is None and ensemble != 1:
        raise PreconditionFailedError(
            f"{COPIES[0]} must be 1: this broker stores one copy",
            remedy="start it with --bookies, or on a cluster of bookies",
        )
    rate = as_decimal(document.get(_MARK_RATE, -1.0), what=_MARK_RATE) or 0.0
    if rate >= 1 << 31:
        raise BadRequestError(f"{_MARK_RATE} must be below 2^31")
    return {**found, _MARK_RATE: rate}


_MODES: Final = tuple(mode.value for mode in DeleteMode)


def _inactive_topics(call: Call) -> Fields | None:
    document = as_object(call.json())
    if document is None:
        return None
    mode = as_choice(document.get("inactiveTopicDeleteMode"), _MODES, what="inactiveTopicDeleteMode")
    return {
        **({} if mode is None else {"inactiveTopicDeleteMode": mode}),
        "maxInactiveDurationSeconds": whole_of(document, "maxInactiveDurationSeconds"),
        "deleteWhileInactive": flag_of(document, "deleteWhileInactive"),
    }


# -- what comes into being ---------------------------------------------------------------------------


def _topic_creation(call: Call) -> Fields | None:
    document = as_object(call.json())
    if document is None:
        return None
    allowed = flag_of(document, "allowAutoTopicCreation")
    kind = as_text(document.get("topicType"), what="topicType")
    partitions = as_whole(document.get("defaultNumPartitions"), what="defaultNumPartitions")
    wrong = _wrong_creation(kind, partitions) if allowed else ""
    if wrong:
        raise PreconditionFailedError(
            f"Invalid configuration for autoTopicCreationOverride. the detail is {wrong}"
        )
    return {
        "allowAutoTopicCreation": allowed,
        **({} if kind is None else {"topicType": kind}),
        **({} if partitions is None else {"defaultNumPartitions": partitions}),
    }


def _wrong_creation(kind: str | None, partitions: int | None) -> str:
    name = "null" if kind is None else kind
    if name.lower() not in (PARTITIONED, NON_PARTITIONED):
        return f"Unknown topic type [{name}]"
    number = "[defaultNumPartitions]"
    if name.lower() == NON_PARTITIONED:
        if partitions is not None:
            return f"{number} is not allowed to be set when the type is non-partition."
        return ""
    if partitions is None:
        return f"{number} cannot be null when the type is partitioned."
    if partitions < 1:
        return f"{number} cannot be less than 1 for partition type."
    if partitions > PARTITIONS_MAX:
        return f"{number} cannot be more than {PARTITIONS_MAX} for partition type."
    return ""


def _subscription_creation(call: Call) -> Fields | None:
    document = as_object(call.json())
    name = "allowAutoSubscriptionCreation"
    return None if document is None else {name: flag_of(document, name)}


# -- how messages are given --------------------------------------------------------------------------


def _delayed_delivery(call: Call) -> Fields | None:
    document = as_object(call.json())
    if document is None:
        return None
    return {
        "active": flag_of(document, "active"),
        "tickTime": whole_of(document, "tickTime", bits=LONG_BITS),
        DELAY_MAX: whole_of(document, DELAY_MAX, bits=LONG_BITS),
    }


def _entry_filters(call: Call) -> Fields | None:
    document = as_object(call.json())
    if document is None:
        return None
    names = names_in(as_text(document.get(FILTER_NAMES), what=FILTER_NAMES) or "")
    rules = call.broker.config.limits.entry_filters
    known = f"there are {', '.join(sorted(rules.known))}"
    if not names:
        raise BadRequestError(
            f"{FILTER_NAMES} can't be empty. To remove entry filters use the remove method.", remedy=known
        )
    for name in names:
        if name not in rules.known:
            raise BadRequestError(
                f"Entry filter '{name}' not found",
                remedy=f"{known} (Java classes cannot run here, the operator installs Python classes)",
            )
    rules.check_choice(names)
    return {FILTER_NAMES: ",".join(names)}


RETENTION: Final = PolicyKind(
    _retention, schema(dict.fromkeys(("retentionTimeInMinutes", "retentionSizeInMB"), _WHOLE))
)
PERSISTENCE: Final = PolicyKind(
    _persistence, schema({**dict.fromkeys(COPIES, _WHOLE), _MARK_RATE: {"type": "number"}})
)
INACTIVE_TOPICS: Final = PolicyKind(
    _inactive_topics,
    schema(
        {
            "inactiveTopicDeleteMode": {"type": "string", "enum": list(_MODES)},
            "maxInactiveDurationSeconds": _WHOLE,
            "deleteWhileInactive": _BOOLEAN,
        }
    ),
)
TOPIC_CREATION: Final = PolicyKind(
    _topic_creation,
    schema(
        {
            "allowAutoTopicCreation": _BOOLEAN,
            "topicType": {"type": "string", "enum": [PARTITIONED, NON_PARTITIONED]},
            "defaultNumPartitions": {"type": "integer", "minimum": 1, "maximum": PARTITIONS_MAX},
        }
    ),
)
SUBSCRIPTION_CREATION: Final = PolicyKind(
    _subscription_creation, schema({"allowAutoSubscriptionCreation": _BOOLEAN})
)
DELAYED_DELIVERY: Final = PolicyKind(
    _delayed_delivery, schema({"active": _BOOLEAN, "tickTime": _WHOLE, DELAY_MAX: _WHOLE})
)
ENTRY_FILTERS: Final = PolicyKind(_entry_filters, schema({FILTER_NAMES: {"type": "string"}}, FILTER_NAMES))

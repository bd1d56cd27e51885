"""Types of policies' values: what a request may carry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from magnetar.admin.call import PARTITIONS_MAX, Call, natural, whole
from magnetar.admin.errors import BadRequestError
from magnetar.admin.policies.declared import Kind
from magnetar.broker.creation import NON_PARTITIONED, PARTITIONED
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.filters.rules import FILTER_NAMES, names_in
from magnetar.broker.in_force import COPIES
from magnetar.broker.inactive.policy import DeleteMode
from magnetar.broker.limits.limits import ALL_TYPES, DELAY_MAX
from magnetar.broker.schema_rules import AUTO_UPDATE_STRATEGIES
from magnetar.schemas.compatibility import Strategy

_NUMBER_MAX: Final = 1 << 63
_SECONDS_MAX: Final = 1 << 31


def _number(call: Call) -> int:
    value = whole(call.json())
    if value is None or value >= _NUMBER_MAX:
        raise BadRequestError("the body must be a number")
    if value < 0:
        raise PreconditionFailedError("a limit must be 0 or more; 0 is without limit")
    return value


def _message_size(call: Call) -> int:
    value = _number(call)
    most = call.broker.config.message_bytes_max
    if value > most:
        raise PreconditionFailedError(f"no topic may take messages larger than the broker does: {most} bytes")
    return value


def _ttl(call: Call) -> int:
    """In the body, or as Pulsar's clients send a topic's: in the query."""
    text = call.query.get("messageTTL")
    return _number(call) if text is None else natural(text, "messageTTL")


def _seconds(call: Call) -> int:
    number = whole(call.json())
    if number is None or not 0 <= number < _SECONDS_MAX:
        raise BadRequestError("the body must be a number of seconds")
    return number


def _bytes(call: Call) -> int:
    number = whole(call.json())
    if number is None or not 0 <= number < _NUMBER_MAX:
        raise BadRequestError("the body must be a number of bytes")
    return number


def _types(call: Call) -> list[str]:
    value = call.json()
    names = [] if value is None else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRequestError("the body must be a list of subscription types")
    unknown = set(names) - ALL_TYPES
    if unknown:
        raise BadRequestError(f"{sorted(unknown)[0]!r} is none of {', '.join(sorted(ALL_TYPES))}")
    return sorted(set(names))


def _rate(*numbers: str) -> Kind:
    def read(call: Call) -> dict[str, Any]:
        document = call.json_object()
        for name in (*numbers, "ratePeriodInSecond"):
            value = whole(document.get(name, -1))
            if value is None or not -1 <= value < _NUMBER_MAX:
                raise BadRequestError(f"{name} must be a number, -1 is without limit")
            if name in document:
                document[name] = value
        return document

    return Kind(read, _object(dict.fromkeys((*numbers, "ratePeriodInSecond"), WHOLE_OR_UNLIMITED)))


def _retention(call: Call) -> dict[str, int]:
    value = call.json()
    if not isinstance(value, dict):
        raise BadRequestError('the body must be {"retentionTimeInMinutes": n, "retentionSizeInMB": n}')
    limits = {}
    for key in ("retentionTimeInMinutes", "retentionSizeInMB"):
        number = whole(value.get(key, 0))
        if number is None or not -1 <= number < _SECONDS_MAX:
            raise BadRequestError(f"{key} must be a number from -1 (without limit) up")
        limits[key] = number
    if (limits["retentionTimeInMinutes"] == 0) != (limits["retentionSizeInMB"] == 0):
        raise PreconditionFailedError(
            "time and size of a retention must both be 0 or both be set: one 0 keeps nothing"
        )
    return limits


def _topic_creation(call: Call) -> dict[str, Any]:
    value = call.json()
    if not isinstance(value, dict) or not isinstance(value.get("allowAutoTopicCreation"), bool):
        raise BadRequestError('the body must be {"allowAutoTopicCreation": true or false, ...}')
    kind, partitions = value.get("topicType", NON_PARTITIONED), whole(value.get("defaultNumPartitions"))
    if kind not in (PARTITIONED, NON_PARTITIONED):
        raise PreconditionFailedError(f"topicType must be {PARTITIONED} or {NON_PARTITIONED}")
    if kind == PARTITIONED and not 0 < (partitions or 0) <= PARTITIONS_MAX:
        raise PreconditionFailedError(f"defaultNumPartitions must be from 1 to {PARTITIONS_MAX}")
    if kind == NON_PARTITIONED and partitions:
        raise PreconditionFailedError("defaultNumPartitions is for partitioned topics only")
    return {
        "allowAutoTopicCreation": value["allowAutoTopicCreation"],
        "topicType": kind,
        **({"defaultNumPartitions": partitions} if kind == PARTITIONED else {}),
    }


def _inactive_topics(call: Call) -> dict[str, Any]:
    value = call.json()
    modes = [mode.value for mode in DeleteMode]
    if not isinstance(value, dict) or value.get("inactiveTopicDeleteMode", modes[0]) not in modes:
        raise BadRequestError(f"inactiveTopicDeleteMode must be one of {', '.join(modes)}")
    seconds, delete = whole(value.get("maxInactiveDurationSeconds")), value.get("deleteWhileInactive")
    if not isinstance(delete, bool) or seconds is None:
        raise BadRequestError("deleteWhileInactive must be a boolean, maxInactiveDurationSeconds a number")
    if not 0 < seconds < _SECONDS_MAX:
        raise PreconditionFailedError("maxInactiveDurationSeconds must be at least 1")
    return {
        "inactiveTopicDeleteMode": value.get("inactiveTopicDeleteMode", modes[0]),
        "maxInactiveDurationSeconds": seconds,
        "deleteWhileInactive": delete,
    }


def _subscription_creation(call: Call) -> dict[str, bool]:
    value = call.json()
    allowed = value.get("allowAutoSubscriptionCreation") if isinstance(value, dict) else None
    if not isinstance(allowed, bool):
        raise BadRequestError('the body must be {"allowAutoSubscriptionCreation": true or false}')
    return {"allowAutoSubscriptionCreation": allowed}


def _delayed_delivery(call: Call) -> dict[str, Any]:
    value = call.json()
    if not isinstance(value, dict) or not isinstance(value.get("active"), bool):
        raise BadRequestError('the body must be {"active": true or false, "tickTime": ms}')
    tick_ms = whole(value.get("tickTime", 1000))
    if tick_ms is None or not 0 < tick_ms < _SECONDS_MAX:
        raise BadRequestError("tickTime must be a number of milliseconds")
    found = {"active": value["active"], "tickTime": tick_ms}
    longest_ms = whole(value.get(DELAY_MAX, 0))
    if longest_ms is None or not 0 <= longest_ms < _NUMBER_MAX:
        raise BadRequestError(f"{DELAY_MAX} must be a number of milliseconds, 0 is without limit")
    return {**found, DELAY_MAX: longest_ms} if longest_ms else found


def _entry_filters(call: Call) -> dict[str, str]:
    value = call.json()
    text = value.get(FILTER_NAMES) if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise BadRequestError(f'the body must be {{"{FILTER_NAMES}": "names, separated by commas"}}')
    names = names_in(text)
    call.broker.config.limits.entry_filters.check_choice(names)
    return {FILTER_NAMES: ",".join(names)}


def _always(_: Call) -> bool:
    """A switch that is set without a body."""
    return True


_MARK_RATE: Final = "managedLedgerMaxMarkDeleteRate"


def _persistence(call: Call) -> dict[str, Any]:
    document = call.json_object()
    found: dict[str, Any] = {}
    told = call.broker.config.copies
    for name, default in zip(COPIES, told or (1, 1, 1), strict=True):
        number = whole(document.get(name, default))
        if number is None:
            raise BadRequestError(f"{name} must be a number")
        if number != 1 and told is None:
            raise PreconditionFailedError(
                f"{name} must be 1: this broker stores one copy; start it with --bookies, or on a cluster of"
                " bookies"
            )
        found[name] = number or default
    ensemble, written, acknowledged = (found[name] for name in COPIES)
    if not ensemble >= written >= acknowledged >= 1:
        raise PreconditionFailedError(
            f"{COPIES[0]} {ensemble}, {COPIES[1]} {written} and {COPIES[2]} {acknowledged}: each must be"
            " at most the one before it, and none below 1"
        )
    rate = document.get(_MARK_RATE, 0)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1 << 31:
        raise PreconditionFailedError(f"{_MARK_RATE} must be 0 or more")
    return {**found, _MARK_RATE: float(rate)}


def _one_of(*names: str) -> Kind:
    def read(call: Call) -> str:
        value = call.json()
        if value not in names:
            raise BadRequestError(f"the body must be one of {', '.join(names)}")
        return str(value)

    return Kind(read, {"type": "string", "enum": list(names)})


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


def _counted(read: Callable[[Call], int]) -> Kind:
    return Kind(read, {"type": "integer", "minimum": 0})


WHOLE_OR_UNLIMITED: Final = {"type": "integer", "minimum": -1}
_BOOLEAN: Final = {"type": "boolean"}
_COUNT: Final = {"type": "integer", "minimum": 0}

BOOLEAN: Final = Kind(lambda call: call.json_bool(), _BOOLEAN)
SWITCH: Final = Kind(_always, _BOOLEAN)
NUMBER: Final = _counted(_number)
MESSAGE_SIZE: Final = _counted(_message_size)
TTL: Final = _counted(_ttl)
SECONDS: Final = _counted(_seconds)
BYTES: Final = _counted(_bytes)
TYPES: Final = Kind(_types, {"type": "array", "items": {"type": "string", "enum": sorted(ALL_TYPES)}})
DISPATCH: Final = _rate("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")
PUBLISH: Final = _rate("publishThrottlingRateInMsg", "publishThrottlingRateInByte")
SUBSCRIBE: Final = _rate("subscribeThrottlingRatePerConsumer")
RETENTION: Final = Kind(
    _retention,
    _object({"retentionTimeInMinutes": WHOLE_OR_UNLIMITED, "retentionSizeInMB": WHOLE_OR_UNLIMITED}),
)
TOPIC_CREATION: Final = Kind(
    _topic_creation,
    _object(
        {
            "allowAutoTopicCreation": _BOOLEAN,
            "topicType": {"type": "string", "enum": [PARTITIONED, NON_PARTITIONED]},
            "defaultNumPartitions": {"type": "integer", "minimum": 1, "maximum": PARTITIONS_MAX},
        },
        "allowAutoTopicCreation",
    ),
)
INACTIVE_TOPICS: Final = Kind(
    _inactive_topics,
    _object(
        {
            "inactiveTopicDeleteMode": {"type": "string", "enum": [mode.value for mode in DeleteMode]},
            "maxInactiveDurationSeconds": {"type": "integer", "minimum": 1},
            "deleteWhileInactive": _BOOLEAN,
        },
        "maxInactiveDurationSeconds",
        "deleteWhileInactive",
    ),
)
SUBSCRIPTION_CREATION: Final = Kind(
    _subscription_creation,
    _object({"allowAutoSubscriptionCreation": _BOOLEAN}, "allowAutoSubscriptionCreation"),
)
DELAYED_DELIVERY: Final = Kind(
    _delayed_delivery, _object({"active": _BOOLEAN, "tickTime": _COUNT, DELAY_MAX: _COUNT}, "active")
)
ENTRY_FILTERS: Final = Kind(_entry_filters, _object({FILTER_NAMES: {"type": "string"}}, FILTER_NAMES))
PERSISTENCE: Final = Kind(
    _persistence, _object({**dict.fromkeys(COPIES, _COUNT), _MARK_RATE: {"type": "number", "minimum": 0}})
)
STRATEGY: Final = _one_of(*(strategy.value for strategy in Strategy))
AUTO_UPDATE_STRATEGY: Final = _one_of(*AUTO_UPDATE_STRATEGIES)

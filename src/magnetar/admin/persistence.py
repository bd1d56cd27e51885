"""How messages are stored: the persistence of namespaces, and how large what lies behind a message is.

There is one bookie, so that one copy is all that can be promised. The rate of cursor updates is kept for
those who ask: acknowledgements share their commits with messages, so that it needs no limit.
"""

from __future__ import annotations

from typing import Any, Final

from magnetar.admin import topics
from magnetar.admin.call import Call, Route, message_position, whole
from magnetar.admin.errors import BadRequestError
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.limits.enforcement import backlog_of
from magnetar.broker.policies import Policies

_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_KEY: Final = "persistence"
_COPIES: Final = ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum")
_RATE: Final = "managedLedgerMaxMarkDeleteRate"


def _persistence(call: Call) -> dict[str, Any]:
    document = call.json_object()
    found: dict[str, Any] = {}
    for name in _COPIES:
        number = whole(document.get(name, 1))
        if number is None:
            raise BadRequestError(f"{name} must be a number")
        if number != 1:
            raise PreconditionFailedError(f"{name} must be 1: this broker stores one copy")
        found[name] = number
    rate = document.get(_RATE, 0)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1 << 31:
        raise PreconditionFailedError(f"{_RATE} must be 0 or more")
    return {**found, _RATE: float(rate)}


async def of_namespace(call: Call) -> object:
    return (await call.broker.policies.namespace(call.namespace())).get(_KEY)


async def put_of_namespace(call: Call) -> None:
    value = _persistence(call)

    def change(document: Policies) -> None:
        document[_KEY] = value

    await call.broker.policies.update_namespace(call.namespace(), change)


async def delete_of_namespace(call: Call) -> None:
    def change(document: Policies) -> None:
        document.pop(_KEY, None)

    await call.broker.policies.update_namespace(call.namespace(), change)


async def backlog_size(call: Call) -> object:
    """Bytes behind a message, by the log's average."""
    name = call.topic()
    await call.broker.check_name(name)
    await topics.refuse_partitioned(call.broker, name, "the size of a backlog")
    topic = await topics.loaded(call.broker, name)
    position, _ = message_position(call.json_object())
    if position.ledger_id < 0:
        return topic.log.size_bytes
    return backlog_of(topic.log, position)[1]


ROUTES: list[Route] = [
    ("GET", f"{_N}/persistence", of_namespace),
    ("POST", f"{_N}/persistence", put_of_namespace),
    ("DELETE", f"{_N}/persistence", delete_of_namespace),
    ("PUT", f"{_T}/backlogSize", backlog_size),
]

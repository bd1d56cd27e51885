"""`/admin/v3/functions/.../{function}/...`: instances: status, start and stop, trigger, state.

Source: Pulsar's `FunctionsImpl`, `ComponentImpl`; bodies and answers in `instance_documents.py`.
"""

from __future__ import annotations

import codecs
from typing import Final

from magnetar.admin.calls.call import Call, Operation, Raw, Route, natural
from magnetar.admin.calls.errors import BadRequestError, NotHereError, TooSlowError
from magnetar.admin.functions.functions import F, name_of
from magnetar.admin.functions.instance_documents import (
    all_stats,
    all_statuses,
    state_document,
    state_value,
    stats_document,
    status_document,
    worker_id,
)
from magnetar.admin.functions.receiving import functions_of, received
from magnetar.auth.permissions import Action
from magnetar.base.names import TopicName
from magnetar.functions.catalogue.records import FunctionRecord
from magnetar.functions.errors import NoSuchInstanceError, TriggerError
from magnetar.functions.service import Functions

_I: Final = f"{F}/{{instance}}"
_TRIGGER: Final = {"data": "text", "dataStream": "file", "topic": "text"}


async def _both(call: Call) -> tuple[Functions, FunctionRecord]:
    """The functions of this process, and the one of the path. Raises FunctionNotFoundError."""
    functions = await functions_of(call)
    return functions, await functions.catalogue.get(call.namespace(), name_of(call))


def _instance(call: Call, record: FunctionRecord) -> int:
    """The instance of the path. Raises BadRequestError when the function has no such instance."""
    number = call.integer("instance")
    if number >= record.config.parallelism:
        raise BadRequestError(
            f"Function {record.config.name} doesn't have instance with id {number}",
            remedy=f"its instances are 0 to {record.config.parallelism - 1}",
        )
    return number


async def status(call: Call) -> object:
    """What each instance is doing."""
    functions, record = await _both(call)
    found = await (await functions.workers()).status(functions.catalogue.stored(record))
    return all_statuses(found, worker_id(call.broker))


async def instance_status(call: Call) -> object:
    """What one instance is doing."""
    functions, record = await _both(call)
    number = _instance(call, record)
    found = await (await functions.workers()).status(functions.catalogue.stored(record))
    return status_document(next(each for each in found if each.instance == number), worker_id(call.broker))


async def stats(call: Call) -> object:
    """What the instances have done, in sum and each."""
    functions, record = await _both(call)
    return all_stats(await (await functions.workers()).stats(functions.catalogue.stored(record)))


async def instance_stats(call: Call) -> object:
    """What one instance has done."""
    functions, record = await _both(call)
    number = _instance(call, record)
    found = await (await functions.workers()).stats(functions.catalogue.stored(record))
    return stats_document(next(each for each in found if each.instance == number))


async def instance_output(call: Call) -> object:
    """What one instance has written to its standard output and error, from byte `start` on."""
    functions, record = await _both(call)
    number = _instance(call, record)
    start = natural(call.query.get("start", "0"), "start")
    part = (await functions.workers()).output(functions.catalogue.stored(record), number, start)
    # A character that was written in part comes with the next call.
    text, used = codecs.utf_8_decode(part.data, "replace", False)
    return {"instance": number, "begin": part.begin, "end": part.begin + used, "text": text}


async def start(call: Call) -> None:
    """Starts an instance that was stopped, or all."""
    await _set_running(call, to=True)


async def stop(call: Call) -> None:
    """Stops an instance, or all; its subscriptions stay, and the messages wait."""
    await _set_running(call, to=False)


async def _set_running(call: Call, *, to: bool) -> None:
    number = call.integer("instance") if "instance" in call.params else None
    await (await functions_of(call)).catalogue.set_running(call.namespace(), name_of(call), number, to=to)


async def restart(call: Call) -> None:
    """Ends and starts an instance, or all."""
    functions, record = await _both(call)
    number = call.integer("instance") if "instance" in call.params else None
    try:
        await (await functions.workers()).restart(functions.catalogue.stored(record), number)
    except NoSuchInstanceError as error:
        raise BadRequestError(str(error)) from error


async def trigger(call: Call) -> Raw | None:
    """Sends a message to an input of the function and answers with its result."""
    async with received(call) as taken:
        functions, record = await _both(call)
        value = taken.parts.get("dataStream", taken.parts.get("data"))
        if value is None:
            raise BadRequestError("Trigger Data is not provided")
        topic = taken.text("topic") or None
        if topic is None and len(record.config.inputs) > 1:
            raise BadRequestError(
                "Function in trigger function has more than 1 input topics", remedy="name one of them"
            )
        if topic is not None and topic not in record.config.inputs:
            raise BadRequestError("Function in trigger function has unidentified topic")
        await _check_may_publish(call, record, topic or next(iter(record.config.inputs)))
        try:
            result = await (await functions.workers()).trigger(
                functions.catalogue.stored(record), topic, value
            )
        except TriggerError as error:
            if error.timed_out:
                raise TooSlowError("Request Timed Out", remedy=str(error)) from error
            raise BadRequestError("Function in trigger function is not ready", remedy=str(error)) from error
    return None if result is None else Raw(result, content_type="application/json")


async def _check_may_publish(call: Call, record: FunctionRecord, topic: str) -> None:
    """The function publishes what triggers it, for the caller: both must have the right. Raises
    AuthorizationError."""
    guard = call.broker.guard
    if guard is None:
        return
    for identity in (call.identity, record.owner):
        if identity is not None:
            await guard.require_topic(identity, call.peer, Action.PRODUCE, TopicName.parse(topic))


async def get_state(call: Call) -> object:
    """The state of a key."""
    (functions, record), key = await _both(call), call.params["key"]
    found = await (await functions.workers()).state_get(functions.catalogue.stored(record), key)
    if found is None:
        raise NotHereError(f"key '{key[:200]}' doesn't exist.")
    return state_document(key, found)


async def put_state(call: Call) -> None:
    """Sets the state of a key: `state` is a FunctionState as JSON."""
    async with received(call) as taken:
        (functions, record), key = await _both(call), call.params["key"]
        value = state_value(key, taken.text("state"))
        await (await functions.workers()).state_put(functions.catalogue.stored(record), key, value)


ROUTES: list[Route] = [
    ("GET", f"{F}/status", status),
    ("GET", f"{_I}/status", instance_status),
    ("GET", f"{F}/stats", stats),
    ("GET", f"{_I}/stats", instance_stats),
    ("GET", f"{_I}/output", Operation(instance_output, query=("start",))),
    *(
        ("POST", f"{place}/{verb}", handler)
        for verb, handler in (("start", start), ("stop", stop), ("restart", restart))
        for place in (F, _I)
    ),
    ("POST", f"{F}/trigger", Operation(trigger, upload=_TRIGGER)),
    ("GET", f"{F}/state/{{key}}", get_state),
    ("POST", f"{F}/state/{{key}}", Operation(put_state, upload={"state": "text"})),
]

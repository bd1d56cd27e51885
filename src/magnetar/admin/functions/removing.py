"""A function is deleted with what it has left: subscriptions and state, unless they shall stay.

Order: all instances are stopped, and stay so in the record; then subscriptions and state are removed; then
the record. A crash in between leaves a stopped function, and the call can be repeated.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable
from typing import Final

from magnetar.admin.calls.call import Call
from magnetar.admin.topics.topics import parts
from magnetar.auth.permissions import Action
from magnetar.base.errors import MagnetarError
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import PreconditionFailedError, TopicNotFoundError
from magnetar.functions.catalogue.records import FunctionRecord
from magnetar.functions.refusals import NoWorkersError, UnchangedFunctionError
from magnetar.functions.service import Functions
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.runtime.tasks import pause

_log = logging.getLogger("magnetar.functions")

_TRIES: Final = 20
_AGAIN_S: Final = 0.1
"""Seconds before a subscription is looked at again whose consumer is about to leave."""


async def remove(call: Call, functions: Functions, namespace: NamespaceName, name: str) -> None:
    """Deletes a function. Raises FunctionNotFoundError, MetadataError."""
    try:
        record = await functions.catalogue.get(namespace, name)
    except DamagedDocumentError:
        # What it has left is not known either.
        await functions.catalogue.delete(namespace, name)
        return
    # They are stopped already when an earlier call did not get further.
    with contextlib.suppress(UnchangedFunctionError):
        await functions.catalogue.set_running(namespace, name, None, to=False)
    cleans = record.config.cleanup_subscription
    try:
        workers = await functions.workers()
    except NoWorkersError:
        workers = None  # Nothing has run it in this process, and nothing runs it now.
    if workers is not None:
        await workers.end(functions.catalogue.stored(record), forget=cleans)
    if cleans:
        for topic in await _inputs(call, record):
            await _unsubscribe(call, record, topic)
    await functions.catalogue.delete(namespace, name)


async def _inputs(call: Call, record: FunctionRecord) -> Iterable[TopicName]:
    """The topics that are read; of patterns those that there are."""
    found: set[TopicName] = set()
    for text, given in record.config.inputs.items():
        if not given.is_regex:
            found.add(TopicName.parse(text))
            continue
        # As an instance finds them: `instance/links.py`.
        space, _, _ = text.removeprefix("persistent://").rpartition("/")
        pattern = re.compile(text)
        topics = await call.broker.topics_of(NamespaceName.parse(space))
        found.update(each.base for each in topics if pattern.fullmatch(str(each.base)))
    return sorted(found, key=str)


async def _unsubscribe(call: Call, record: FunctionRecord, topic: TopicName) -> None:
    """Removes the function's subscription to a topic. What cannot be removed stays, with a line in the
    log."""
    name = record.config.subscription
    try:
        if not await _may(call, record, topic):
            raise PreconditionFailedError("the function's owner may not consume there")
        for part in await parts(call.broker, topic):
            for left in reversed(range(_TRIES)):
                try:
                    if name in part.subscriptions:
                        await part.delete_subscription(name, force=False)
                    break
                except PreconditionFailedError:
                    if not left:
                        raise
                    # The instance has ended, and the broker is about to notice that its connection is closed.
                    await pause(_AGAIN_S)
    except TopicNotFoundError:
        return  # Its subscriptions are gone with it.
    except MagnetarError as error:
        # The function is deleted all the same; an operator can remove the subscription.
        _log.warning("subscription %s of %s stays: %s", name, topic, error)


async def _may(call: Call, record: FunctionRecord, topic: TopicName) -> bool:
    """Whether the function's owner may: its configuration may name any subscription."""
    guard, owner = call.broker.guard, record.owner or call.identity
    if guard is None or owner is None:
        return True
    return await guard.may_topic(owner, Action.CONSUME, topic, record.config.subscription)

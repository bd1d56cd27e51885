"""Routes about backlogs: size, analysis and truncation."""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Call, Route, message_position
from magnetar.admin.subscriptions.subscriptions import find
from magnetar.admin.topics import topics
from magnetar.admin.topics.over_partitions import nothing, spread
from magnetar.base.ids import EARLIEST, LATEST, Position
from magnetar.broker.limits.enforcement import backlog_of
from magnetar.managedlog.config import Retention

_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_READ_BYTES: Final = 4 << 20
_SCAN_ENTRIES_MAX: Final = 10_000
"""Most entries of one analysis (Pulsar's limit); `aborted` is true when there are more."""


async def size(call: Call) -> object:
    """Bytes after a message, estimated by the log's average entry size."""
    name = call.topic()
    await call.broker.check_name(name)
    await topics.refuse_partitioned(call.broker, name, "the size of a backlog")
    topic = await topics.loaded(call.broker, name)
    position, _ = message_position(call.json_object())
    if position.ledger_id < 0:
        return topic.log.size_bytes
    return backlog_of(topic.log, position)[1]


async def analyze(call: Call) -> object:
    """Counts the messages of a subscription's backlog by reading it."""
    name = call.topic()
    await topics.refuse_partitioned(call.broker, name, "analyzing a backlog")
    topic = await topics.loaded(call.broker, name)
    cursor, log = find(topic, call.params["subscription"]).cursor, topic.log
    body = call.json()
    start, _ = (EARLIEST, False) if body is None else message_position(body)
    after = cursor.next_unacked(log.next_position(cursor.mark_delete))
    position = max(after, start) if start < LATEST else after
    first: Position | None = None
    last: Position | None = None
    entries, messages, aborted = 0, 0, False
    while position <= log.last_position and not aborted:
        runs = await log.read(position, _READ_BYTES, 1000)
        if not runs:
            break
        for run in runs:
            for offset in range(len(run.entries)):
                at = Position(run.ledger_id, run.first_entry + offset)
                position = log.next_position(at)
                if cursor.is_acked(at):
                    continue
                first, last = first or at, at
                entries += 1
                messages += 1 if run.counts is None else run.counts[offset]
        aborted = entries >= _SCAN_ENTRIES_MAX
    return {
        "entries": entries,
        "messages": messages,
        "filterAcceptedEntries": entries,
        "filterRejectedEntries": 0,
        "filterRescheduledEntries": 0,
        "filterAcceptedMessages": messages,
        "filterRejectedMessages": 0,
        "filterRescheduledMessages": 0,
        "aborted": aborted,
        "firstMessageId": _id(first),
        "lastMessageId": _id(last),
    }


async def truncate(call: Call) -> None:
    """Moves every subscription to the end and deletes all messages, also retained ones."""
    for topic in await topics.parts(call.broker, call.topic()):
        for subscription in list(topic.subscriptions.values()):
            await subscription.skip_all()
        # The ledger that is open can be deleted once it is not.
        await call.broker.unload(topic.name)
        again = await topics.loaded(call.broker, topic.name)
        kept, again.log.retention = again.log.retention, Retention(ms=0, size_bytes=0)
        try:
            await again.log.trim()
        finally:
            again.log.retention = kept


def _id(position: Position | None) -> str | None:
    return None if position is None else f"{position.ledger_id}:{position.entry_id}"


ROUTES: list[Route] = [
    ("PUT", f"{_T}/backlogSize", size),
    ("POST", f"{_T}/subscription/{{subscription}}/analyzeBacklog", analyze),
    ("DELETE", f"{_T}/truncate", spread("DELETE", truncate, nothing)),
]

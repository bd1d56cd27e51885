"""Compaction on request, and its statistics."""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Call, Document, Route
from magnetar.admin.topics.over_partitions import nothing, spread
from magnetar.admin.topics.topics import loaded, parts
from magnetar.broker.topic.topic import Topic

_C: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/compaction"


def compacted_ledger(topic: Topic) -> Document:
    """The compacted ledger in Pulsar's internal statistics; ledger id -1 when there is none."""
    stored = topic.compaction.stored
    return {
        "ledgerId": -1 if stored is None else stored.ledger_id,
        "entries": -1 if stored is None else stored.entry_count,
        "size": -1 if stored is None else stored.size_bytes,
        "offloaded": False,
        "underReplicated": False,
    }


def compaction_stats(topic: Topic) -> Document:
    """The block `compaction` of Pulsar's topic statistics. Times are Unix ms, durations ms."""
    job = topic.compaction.job
    return {
        "lastCompactionRemovedEventCount": job.removed_messages,
        "lastCompactionSucceedTimestamp": job.succeeded_ms,
        "lastCompactionFailedTimestamp": job.failed_ms,
        "lastCompactionDurationTimeInMills": job.duration_ms,
    }


async def start(call: Call) -> None:
    """Starts to compact the topic or all its partitions; 409 while a compaction runs."""
    for topic in await parts(call.broker, call.topic()):
        topic.compaction.start()


async def status(call: Call) -> Document:
    """Pulsar's LongRunningProcessStatus."""
    compaction = (await loaded(call.broker, call.topic())).compaction
    return {"status": compaction.status.value, "lastError": compaction.error}


ROUTES: list[Route] = [("PUT", _C, spread("PUT", start, nothing)), ("GET", _C, status)]

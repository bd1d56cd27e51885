"""Internal statistics of a topic's log, in the form of Pulsar's admin API.

Beyond Pulsar's fields, ledgers carry the index (PIP-70) of their first message, so that a reader of a range
can plan by message numbers; the last entry before the oldest open transaction tells how far it may read; and
a cursor that fell back because its ledger is damaged says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.admin.calls.call import Document
from magnetar.admin.topics.compaction import compacted_ledger
from magnetar.base.ids import Position
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.topic import Topic
from magnetar.managedlog.info import CursorInfo, LedgerInfo, LogInfo
from magnetar.managedlog.visible_reading import read_limit
from magnetar.tiered.context import OffloadedCopy, segment_name

_STATES: Final = {
    "open": "LedgerOpened",
    "terminated": "Terminated",
    "failed": "WriteFailed",
    "fenced": "Fenced",
    "closing": "Closing",
    "closed": "Closed",
}
"""Pulsar's names of our states."""


def internal_stats(topic: Topic) -> Document:
    """The ledgers and cursors of one topic or partition."""
    info = topic.log.info()
    return {
        "entriesAddedCounter": info.entries_added,
        "numberOfEntries": info.entries,
        "totalSize": info.size_bytes,
        "currentLedgerEntries": info.current_ledger_entries,
        "currentLedgerSize": info.current_ledger_bytes,
        "lastConfirmedEntry": str(info.last_position),
        **_read_limit(topic),
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "pendingBytes": info.pending_bytes,
        "state": _STATES.get(info.state, info.state),
        "ledgers": _ledgers(info, topic.log.offloading.place),
        "cursors": {
            name: _cursor(cursor, topic.subscriptions.get(name)) for name, cursor in info.cursors.items()
        },
        "lostEntriesPassedOver": [] if (lost := topic.log.reading.skipped) is None else lost.shown(),
        "schemaLedgers": [],
        "compactedLedger": compacted_ledger(topic),
        "firstIndex": info.ledgers[0].first_index if info.ledgers else info.next_index,
        "lastIndex": info.next_index - 1,
        "messages": info.next_index - info.ledgers[0].first_index if info.ledgers else 0,
        "properties": dict(info.properties),
    }


def _read_limit(topic: Topic) -> Document:
    """The last entry before the oldest open transaction, where transactions may keep entries from readers."""
    visible = topic.log.reading.visible
    return {} if visible is None or visible.is_whole else {"maxReadPosition": str(read_limit(topic.log))}


def _ledgers(info: LogInfo, place: Callable[[str], str]) -> list[Document]:
    """The ledgers; `messages` is the difference of the first indexes of two ledgers."""
    ends = [*(ledger.first_index for ledger in info.ledgers[1:]), info.next_index]
    return [
        {
            "ledgerId": ledger.ledger_id,
            "entries": ledger.entries,
            "size": ledger.size_bytes,
            "offloaded": ledger.offloaded,
            **({"offloadedTo": _objects(info.name, ledger, place)} if ledger.offloaded else {}),
            "underReplicated": False,
            "timestamp": ledger.timestamp_ms,
            "firstIndex": ledger.first_index,
            "messages": end - ledger.first_index,
        }
        for ledger, end in zip(info.ledgers, ends, strict=True)
    ]


def _objects(log_name: str, ledger: LedgerInfo, place: Callable[[str], str]) -> Document:
    """The store of a ledger's copy and its objects, so that Spark can read them directly."""
    context = ledger.offload
    assert context is not None, "only ledgers with a copy are asked for it"
    copy = OffloadedCopy(ledger.ledger_id, context)
    segments = [
        {
            "name": segment_name(log_name, copy, segment),
            "firstEntry": segment.first_entry,
            "lastEntry": segment.last_entry,
            "size": segment.file_bytes,
            **({} if segment.footer is None else {"footer": segment.footer.encode()}),
        }
        for segment in context.segments
    ]
    # An object of several ledgers is named by each of them.
    shared = {} if context.merged is None else {"ledgers": list(context.merged)}
    return {**offloaded_to(ledger, place), **shared, "segments": segments}


def offloaded_to(ledger: LedgerInfo, place: Callable[[str], str]) -> Document:
    """The store of a ledger's copy."""
    context = ledger.offload
    assert context is not None, "only ledgers with a copy are asked for it"
    return {
        "attempt": str(context.attempt),
        "url": place(context.url),
        "objects": len(context.segments),
        "size": context.size_bytes,
        "timestamp": context.timestamp_ms,
        "onlyCopy": context.local_deleted,
    }


def _cursor(cursor: CursorInfo, subscription: Subscription | None) -> Document:
    read: Position = cursor.next_unacked if subscription is None else subscription.read_position
    return {
        "markDeletePosition": str(cursor.mark_delete),
        "readPosition": str(read),
        "waitingReadOp": False,
        "pendingReadOps": 0,
        "messagesConsumedCounter": 0,
        "cursorLedger": cursor.ledger_id,
        "cursorLedgerLastEntry": -1,
        "individuallyDeletedMessages": cursor.acked_ranges,
        "lastLedgerSwitchTimestamp": "",
        "state": "Open",
        "active": subscription is not None and bool(subscription.consumers),
        "numberOfEntriesSinceFirstNotAckedMessage": cursor.backlog_entries,
        "totalNonContiguousDeletedMessagesRange": cursor.acked_range_count,
        "subscriptionHavePendingRead": False,
        "subscriptionHavePendingReplayRead": False,
        "properties": dict(cursor.properties),
        **({"recoveredFromDamage": cursor.damage} if cursor.damage else {}),
    }


def stored_info(info: LogInfo) -> dict[str, object]:
    """The log and its cursors in the metadata store."""
    terminated = info.terminated
    return {
        "version": 1,
        "creationDate": "",
        "modificationDate": "",
        "ledgers": [
            {
                "ledgerId": ledger.ledger_id,
                "entries": ledger.entries,
                "size": ledger.size_bytes,
                "timestamp": ledger.timestamp_ms,
                "isOffloaded": ledger.offloaded,
            }
            for ledger in info.ledgers
        ],
        **(
            {}
            if terminated is None
            else {"terminatedPosition": {"ledgerId": terminated.ledger_id, "entryId": terminated.entry_id}}
        ),
        "cursors": {
            name: {
                "version": 1,
                "cursorsLedgerId": cursor.ledger_id,
                "markDelete": {
                    "ledgerId": cursor.mark_delete.ledger_id,
                    "entryId": cursor.mark_delete.entry_id,
                },
            }
            for name, cursor in info.cursors.items()
        },
        "properties": dict(info.properties),
    }

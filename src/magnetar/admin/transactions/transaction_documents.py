"""Documents about transactions, in the form of Pulsar's admin API."""

from __future__ import annotations

from magnetar.admin.calls.call import Document
from magnetar.base.ids import Position
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.topic import Topic
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.transaction import Transaction
from magnetar.broker.transactions.transactions import Transactions
from magnetar.managedlog.visible_reading import last_visible


def coordinator_stats(number: int, coordinator: Coordinator | None) -> Document:
    """TransactionCoordinatorStats; `coordinator` is None before its first transaction."""
    return {
        "state": "Ready",
        "leastSigBits": -1 if coordinator is None else coordinator.next_sequence - 1,
        "lowWaterMark": 0 if coordinator is None else max(0, coordinator.low_water_mark),
        "ongoingTxnSize": 0 if coordinator is None else coordinator.open_count,
        "recoverStartTime": 0,
        "recoverEndTime": 0,
    }


def status_of(txn: Transaction) -> str:
    """Pulsar's TxnStatus."""
    if txn.state is not TxnState.OPEN:
        return str(txn.state.value)
    if txn.ending is None:
        return "OPEN"
    return "COMMITTING" if txn.ending is TxnState.COMMITTED else "ABORTING"


def metadata(transactions: Transactions, txn: Transaction, *, counted: bool) -> Document:
    """TransactionMetadata; topics have the names that the client gave. `counted`: whether the number of its
    messages is known here."""
    topics = transactions.topics
    return {
        "txnId": str(txn.id),
        "status": status_of(txn),
        "openTimestamp": txn.started_ms,
        "timeoutAt": txn.started_ms + txn.ttl_ms,
        "producedPartitions": {
            txn.names.get(name, name): in_buffer(topics.get(name), txn.id) for name in txn.partitions
        },
        "ackedPartitions": {
            txn.names.get(name, name): {
                subscription: {"cumulativeAckPosition": _text(acks.upto)}
                for subscription, acks in subscriptions.items()
            }
            for name, subscriptions in txn.acks.items()
        },
        "owner": txn.owner or None,
        "reason": txn.reason,
        "messages": txn.messages if counted else None,
    }


def in_buffer(topic: Topic | None, txn_id: TxnId) -> Document:
    """TransactionInBufferStats."""
    part = None if topic is None else topic.transactions
    first = None if part is None else part.spans.first_of(txn_id)
    return {"startPosition": _text(first), "aborted": False}


def buffer_stats(topic: Topic) -> Document:
    """TransactionBufferStats; and, beyond Pulsar, the transaction that holds readers back, and its
    position."""
    part = topic.transactions
    spans = None if part is None else part.spans
    oldest = None if spans is None else spans.oldest
    return {
        "state": "Ready" if spans is not None else "NoSnapshot",
        "maxReadPosition": str(last_visible(topic.log)),
        "lastSnapshotTimestamps": 0,
        "lowWaterMarks": {},
        "ongoingTxnSize": 0 if spans is None else len(spans),
        "recoverStartTime": 0,
        "recoverEndTime": 0,
        "totalAbortedTransactions": 0 if part is None else part.aborted,
        "hiddenEntries": 0 if spans is None else sum(map(len, spans.visible.hidden.values())),
        "heldBackBy": None if oldest is None else str(oldest),
        "heldBackFrom": None if spans is None else _text(spans.visible.end),
    }


def pending_ack_stats(subscription: Subscription) -> Document:
    """TransactionPendingAckStats."""
    part = subscription.transactions
    return {
        "state": "Ready" if part is not None else "None",
        "lowWaterMarks": {},
        "ongoingTxnSize": 0 if part is None else len(part.pending.of),
        "recoverStartTime": 0,
        "recoverEndTime": 0,
    }


def in_pending_ack(subscription: Subscription, txn_id: TxnId) -> Document:
    """TransactionInPendingAckStats."""
    part = subscription.transactions
    acks = None if part is None else part.pending.of.get(txn_id)
    return {"cumulativeAckPosition": None if acks is None else _text(acks.upto)}


def position_state(subscription: Subscription, position: Position, batch_index: int | None) -> str:
    """Pulsar's PositionInPendingAckStats.State."""
    cursor, part = subscription.cursor, subscription.transactions
    if cursor.is_acked(position):
        return "MarkDelete"
    if part is None:
        return "NotInPendingAck"
    waiting = part.pending.bits_of(position)
    whole = part.pending.is_pending(position)
    in_part = waiting is not None and batch_index is not None and bool(waiting[0] >> batch_index & 1)
    return "PendingAck" if whole or in_part else "NotInPendingAck"


def _text(position: Position | None) -> str | None:
    return None if position is None else str(position)

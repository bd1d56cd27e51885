"""Reads messages as they are stored, also those of open and aborted transactions, with the state of each.

Readers never get these messages. They come over the admin API, which is slower: operators use it to examine
what a transaction wrote.
"""

from __future__ import annotations

import base64
import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from magnetar.adminclient import paths
from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.cli.messages.records import Record, records_of
from magnetar.cli.messages.topic_reading import Range, topics_of
from magnetar.client.deliveries import EntryColumns

if TYPE_CHECKING:
    from magnetar.client.client import Client

PLAIN = "plain"
"""State of a message that was sent without a transaction."""


def stored_records(client: Client, topic: TopicName, wanted: Range) -> Iterator[Record]:
    """Yields the stored messages of the range, in the order of times. Raises AdminRefusedError and
    ClientError."""
    found = heapq.merge(
        *(_partition(client, each, wanted) for each in topics_of(client, topic)),
        key=lambda record: record.time_ms,
    )
    return found if wanted.last is None else iter(deque(found, maxlen=wanted.last))


def _partition(client: Client, topic: TopicName, wanted: Range) -> Iterator[Record]:
    at = Position(LedgerId(0), 0)
    if wanted.from_time_ms is not None:
        at = client.admin.position_by_time(topic, wanted.from_time_ms)
    while True:
        query = {"ledger": str(at.ledger_id), "entry": str(at.entry_id)}
        page = client.admin.call("GET", f"{paths.topic(str(topic))}/allEntries", query=query)
        if not page:
            return
        for entry in page:
            yield from filter(wanted.holds, _records(topic, entry))
        at = Position(LedgerId(page[-1]["ledgerId"]), page[-1]["entryId"] + 1)


def _records(topic: TopicName, entry: dict[str, Any]) -> Iterator[Record]:
    columns = EntryColumns()
    stored = base64.b64decode(entry["entry"])
    columns.add(
        LedgerId(entry["ledgerId"]), entry["entryId"], stored, entry["lastIndex"], entry["brokerTime"]
    )
    for record in records_of(topic, columns):
        txn, state = entry["transaction"] or "-", entry["transactionState"] or PLAIN
        yield replace(record, transaction=txn, transaction_state=state)

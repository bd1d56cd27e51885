"""`.../{topic}/allEntries`: all stored entries, including those of open and aborted transactions.

Readers never get the latter. The route is for operators who examine what a transaction wrote.
"""

from __future__ import annotations

import base64
from typing import Final

from magnetar.admin.calls.call import Call, Document, Route, natural
from magnetar.admin.topics.topics import loaded, refuse_partitioned
from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId, Position
from magnetar.broker.topic.topic import Topic
from magnetar.broker.transactions.stamp import transaction_of

_ENTRIES_MAX: Final = 1_000
_BYTES_MAX: Final = 1 << 20
"""Most bytes of an answer, unless its first entry alone is larger."""


async def all_entries(call: Call) -> object:
    """Entries from `ledger` and `entry` on, by default from the first of the topic, at most `limit` of them;
    empty at the end."""
    name = call.topic()
    await refuse_partitioned(call.broker, name, "reading entries")
    topic = await loaded(call.broker, name)
    ledger, entry = (natural(call.query.get(each, "0"), each) for each in ("ledger", "entry"))
    count = min(_ENTRIES_MAX, max(1, natural(call.query.get("limit", str(_ENTRIES_MAX)), "limit")))
    start = max(Position(LedgerId(ledger), entry), topic.log.first_position)
    runs = await topic.log.reading.read_intact(start, _BYTES_MAX, count)
    return [_document(topic, run.slice(row, row + 1)) for run in runs for row in range(len(run.entries))]


def _document(topic: Topic, run: EntryRun) -> Document:
    """The document of a run of one entry."""
    position, (stored,) = Position(run.ledger_id, run.first_entry), run.entries
    txn = transaction_of(stored)
    return {
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
        "lastIndex": run.base_index + run.count_of(0) - 1,
        "brokerTime": run.broker_time_ms,
        "transaction": None if txn is None else str(txn),
        "transactionState": _state_of(topic, position, stored),
        "entry": base64.b64encode(stored).decode(),
    }


def _state_of(topic: Topic, position: Position, stored: bytes) -> str | None:
    """State of the entry's transaction; None when it has none."""
    txn, part = transaction_of(stored), topic.transactions
    if part is not None and part.spans.visible.is_hidden(position):
        # In history only its id is left.
        return "aborted"
    if txn is None:
        return None
    return "open" if part is not None and txn in part.spans else "committed"


ROUTES: list[Route] = [
    ("GET", "/admin/v2/persistent/{tenant}/{namespace}/{topic}/allEntries", all_entries),
]

"""The answers that refuse requests about a ledger. Pure."""

from __future__ import annotations

from typing import TypeAlias

from magnetar.wire.bookkeeper.requests import (
    AddRun,
    BatchRead,
    ForceLedger,
    ListEntries,
    Read,
    ReadLac,
    WriteLac,
)
from magnetar.wire.bookkeeper.responses import (
    Added,
    BatchReadDone,
    EntriesListed,
    Forced,
    LacRead,
    LacWritten,
    ReadDone,
    Response,
)
from magnetar.wire.bookkeeper.status import Status

LedgerRequest: TypeAlias = AddRun | Read | BatchRead | WriteLac | ReadLac | ForceLedger | ListEntries
"""A request about one ledger."""


def refused(request: LedgerRequest, status: Status) -> Response:
    """The answer to a request that was not tried; `status` says why."""
    ledger_id = request.ledger_id
    match request:
        case AddRun():
            return Added(ledger_id, status, request.entry_ids, request.txn_ids)
        case Read():
            return ReadDone(ledger_id, request.entry_id, status, request.txn_id)
        case BatchRead():
            return BatchReadDone(ledger_id, request.first_entry, request.request_id, status)
        case WriteLac():
            return LacWritten(ledger_id, status, request.txn_id)
        case ReadLac():
            return LacRead(ledger_id, status, request.txn_id)
        case ForceLedger():
            return Forced(ledger_id, status, request.txn_id)
        case ListEntries():
            return EntriesListed(ledger_id, status, request.txn_id)

"""Asks the rules of a bookie what a request results in (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.bookie.served import ListedEntries, Output
from magnetar.bookie.serving import BookieLedgers
from magnetar.wire.bookkeeper.requests import (
    AddRun,
    BatchRead,
    ForceLedger,
    ListEntries,
    Read,
    ReadLac,
    Request,
    WriteLac,
)


def outputs_of(
    ledgers: BookieLedgers, listed: ListedEntries, asker: object, request: Request
) -> Sequence[Output]:
    """What `ledgers` say to a request. Raises what the store raises for bytes that are not at hand."""
    if isinstance(request, AddRun):
        return ledgers.add(asker, request)
    if isinstance(request, Read):
        return ledgers.read(asker, request)
    if isinstance(request, BatchRead):
        return ledgers.batch_read(asker, request)
    if isinstance(request, WriteLac):
        return ledgers.write_lac(asker, request)
    if isinstance(request, ReadLac):
        return ledgers.read_lac(asker, request)
    if isinstance(request, ForceLedger):
        return ledgers.force(asker, request)
    assert isinstance(request, ListEntries)
    return ledgers.list_entries(asker, request, listed)

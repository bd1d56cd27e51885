"""Recovers the state that an earlier process left of a coordinator."""

from __future__ import annotations

import logging

from magnetar.base.clock import Clock
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.kept import KeptTransactions
from magnetar.broker.transactions.transaction import InvalidHeaderError, Transaction
from magnetar.metadata.documents import DamagedDocumentError

_log = logging.getLogger("magnetar.broker.transactions")


async def left_by(kept: KeptTransactions, number: int, *, open_max: int, clock: Clock) -> Coordinator:
    """The coordinator with all its transactions that are not over. Raises MetadataError."""
    coordinator = Coordinator(number, open_max=open_max)
    try:
        coordinator.reserved, _ = await kept.reserved(number)
    except DamagedDocumentError as error:
        # What it has begun is recovered. It begins nothing new: that would read the value again.
        _log.error("a coordinator begins no transactions: %s", error)
    coordinator.next_sequence = coordinator.reserved
    async for page, data in kept.outcomes(number):
        try:
            coordinator.outcomes.read(page, data)
        except ValueError as error:
            # They answer repeated END_TXN commands only, which are answered with "not known" from now on.
            _log.error("outcomes %s/%s of transactions cannot be told any more: %s", number, page, error)
    wall_ms, now_ms = clock.now_ms(), clock.monotonic_ms()
    async for sequence, header, version in kept.headers(number):
        txn = Transaction(TxnId(number, sequence), owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
        try:
            txn.read(header, version)
        except InvalidHeaderError as error:
            # It stays stored, for examination. One of them must not keep the broker from starting.
            _log.error("a damaged transaction is left out, and its messages count as committed: %s", error)
            continue
        coordinator.recovered(txn, wall_ms=wall_ms, now_ms=now_ms)
    return coordinator

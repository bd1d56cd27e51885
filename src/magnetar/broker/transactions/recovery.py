"""Recovers the state that an earlier process left of a coordinator."""

from __future__ import annotations

import logging

from magnetar.base.clock import Clock
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.kept import KeptTransactions
from magnetar.broker.transactions.transaction import InvalidHeaderError, Transaction

_log = logging.getLogger("magnetar.broker.transactions")


async def left_by(kept: KeptTransactions, number: int, *, open_max: int, clock: Clock) -> Coordinator:
    """The coordinator with all its transactions that are not over. Raises MetadataError."""
    coordinator = Coordinator(number, open_max=open_max)
    coordinator.reserved, _ = await kept.reserved(number)
    coordinator.next_sequence = coordinator.reserved
    async for page, data in kept.outcomes(number):
        coordinator.outcomes.read(page, data)
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

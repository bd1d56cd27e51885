"""Recovers the state that an earlier process left of a coordinator."""

from __future__ import annotations

import logging

from magnetar.base.clock import Clock
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.kept import KeptTransactions
from magnetar.broker.transactions.outcomes import PAGE
from magnetar.broker.transactions.transaction import InvalidHeaderError, Transaction
from magnetar.metadata import keys
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
            path = f"{keys.transaction_outcomes(number)}/{page}"
            coordinator.outcomes.lose(page, f"outcomes in {path} of the metadata are damaged ({error})")
            _log.error(
                "%s in the metadata cannot be used: %s. The outcomes of its %d transactions are not known: "
                "a repeated END_TXN gets not found. The value is put aside before the page is written again",
                path,
                error,
                PAGE,
            )
    for page, path in (await kept.outcomes_aside(number)).items():
        coordinator.outcomes.lose(page, f"outcomes were lost with a damaged page, which lies at {path}")
    wall_ms, now_ms = clock.now_ms(), clock.monotonic_ms()
    async for sequence, header in kept.headers(number):
        id_, stat = TxnId(number, sequence), header.stat
        txn = left(coordinator, id_, header.data, stat.version, created_ms=stat.created_ms)
        if txn is not None:
            coordinator.recovered(txn, wall_ms=wall_ms, now_ms=now_ms)
    return coordinator


def left(
    coordinator: Coordinator, id_: TxnId, header: bytes, version: int, *, created_ms: int = 0
) -> Transaction | None:
    """A transaction by its header; None: that is damaged, which the coordinator knows now. `created_ms`: of
    the header, 0 where the store does not tell."""
    txn = Transaction(id_, owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
    try:
        txn.read(header, version)
    except InvalidHeaderError as error:
        # It may be open, committed or aborted. One of them must not keep the broker from starting.
        txn = Transaction(id_, owner="", ttl_ms=0, started_ms=created_ms, deadline_ms=0)
        txn.version = version
        coordinator.damaged(txn, _unknown(txn, error))
        _log.error("%s", txn.reason)
        return None
    return txn


def _unknown(txn: Transaction, error: InvalidHeaderError) -> str:
    number, sequence = txn.id.coordinator, txn.id.sequence
    return (
        f"{keys.transaction_headers(number)}/{sequence} in the metadata cannot be used ({error}): whether "
        f"transaction {txn.id} is committed is not known. Topics that hold messages of it deliver none from "
        "the first of them on. Restore the value from a backup and restart, or give the transaction up with "
        f"`magnetar transactions abort {number} {sequence}`"
    )

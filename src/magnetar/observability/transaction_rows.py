"""Metrics of transactions."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section
from magnetar.observability.rows import counter as _c
from magnetar.observability.rows import gauge as _g
from magnetar.observability.rows import histogram as _h

_K: Final = ("cluster",)
_C: Final = ("cluster", "coordinator_id")
_T: Final = ("cluster", "namespace", "topic")
_BEGUN: Final = "of coordinators that have begun a transaction"
_HAD: Final = "of topics that had messages in transactions since they were loaded"

TRANSACTIONS: Final = Section(
    "Transactions",
    (
        _g("pulsar_txn_active_count", "", _C, "Transactions that are open.", only=_BEGUN),
        _c("pulsar_txn_created_total", "", _C, "Transactions begun.", only=_BEGUN),
        _c("pulsar_txn_committed_total", "", _C, "Transactions committed.", only=_BEGUN),
        _c("pulsar_txn_aborted_total", "", _C, "Transactions aborted, for whatever reason.", only=_BEGUN),
        _c(
            "pulsar_txn_timeout_total",
            "",
            _C,
            "Transactions aborted because their time was over.",
            only=_BEGUN,
        ),
        _h(
            "magnetar_transaction_seconds",
            _C,
            "Time from the beginning of a transaction to its decision.",
            only=_BEGUN,
        ),
        _g(
            "magnetar_transaction_oldest_seconds",
            "seconds",
            _K,
            "Age of the transaction that has been open for longest; it holds back the readers of its topics.",
            only="where transactions are on",
        ),
        _g(
            "magnetar_transactions_unresolved",
            "",
            _K,
            "Transactions that are decided and not yet durable on all of their topics.",
            only="where transactions are on",
        ),
        _g("pulsar_txn_tb_active_total", "", _T, "Open transactions with messages in the topic.", only=_HAD),
        _c("pulsar_txn_tb_committed_total", "", _T, "The same that were committed.", only=_HAD),
        _c("pulsar_txn_tb_aborted_total", "", _T, "The same that were aborted.", only=_HAD),
    ),
)

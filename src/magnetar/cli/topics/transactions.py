"""`magnetar transactions`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, NotRequired, TypedDict

import click

from magnetar.cli.verbs import Verb, group

_R: Final = "/admin/v3/transactions"


class _Transaction(TypedDict):
    """A transaction, as the admin API describes it; times are Unix milliseconds."""

    status: str
    openTimestamp: int
    timeoutAt: int
    owner: str | None
    producedPartitions: dict[str, object]
    ackedPartitions: dict[str, object]
    messages: NotRequired[int | None]


def _listed(found: Mapping[str, _Transaction]) -> list[dict[str, object]]:
    """A row for each transaction, the one that is open for longest first."""
    now_ms = time.time() * 1000
    rows: list[dict[str, object]] = []
    for txn_id, document in found.items():
        coordinator, _, number = txn_id.strip("()").partition(",")
        rows.append(
            {
                "coordinator": int(coordinator),
                "number": int(number),
                "status": document["status"],
                "open_s": round(max(0.0, now_ms - document["openTimestamp"]) / 1000, 1),
                "ends_in_s": round((document["timeoutAt"] - now_ms) / 1000, 1),
                "owner": document["owner"] or "",
                "messages": document.get("messages"),
                "topics": sorted({*document["producedPartitions"], *document["ackedPartitions"]}),
            }
        )
    return rows


VERBS: Final = (
    Verb(
        name="list",
        help="Show open transactions with their topics, the one that is open for longest first.",
        path=f"{_R}/slowTransactions/0",
        options=(
            click.Option(
                ["--coordinator"],
                type=click.IntRange(0),
                help="Show only transactions of the coordinator with this number.  [all]",
            ),
        ),
        query={"coordinatorId": "coordinator"},
        rows=_listed,
        columns=("coordinator", "number", "status", "open_s", "ends_in_s", "owner", "messages", "topics"),
        example="transactions list",
    ),
    Verb(
        name="describe",
        help="Show the open transaction NUMBER of COORDINATOR: state, times, topics, subscriptions.",
        path=f"{_R}/transactionMetadata/{{coordinator}}/{{number}}",
        example="transactions describe 0 17",
    ),
    Verb(
        name="abort",
        help="Abort the open transaction NUMBER of COORDINATOR. Its messages are never delivered, and what "
        "it acknowledged comes again.",
        method="POST",
        path=f"{_R}/abortTransaction/{{coordinator}}/{{number}}",
        done="the transaction is aborted",
        question="Abort transaction {number} of coordinator {coordinator}?",
        example="transactions abort 0 17",
    ),
    Verb(
        name="coordinators",
        help="Show transaction coordinators: open transactions, and the last number that each gave out.",
        path=f"{_R}/coordinatorStats",
        rows=lambda found: [
            {
                "coordinator": int(number),
                "state": stats["state"],
                "open": stats["ongoingTxnSize"],
                "last_number": stats["leastSigBits"],
            }
            for number, stats in found.items()
        ],
        columns=("coordinator", "state", "open", "last_number"),
        example="transactions coordinators",
    ),
)

transactions = group("transactions", "Transactions: which are open, and how to end them.", VERBS)

"""`magnetar top`: the busiest topics, updated repeatedly.

Each update makes one scrape of the metrics; rates cover the time between two updates.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import click

from magnetar.cli.caller import Caller, calls
from magnetar.cli.diagnosis.canaries import canaries_of, summary
from magnetar.cli.diagnosis.samples import Look, parsed
from magnetar.cli.output import table_lines

if TYPE_CHECKING:
    from magnetar.adminclient.admin import Admin

_TOPIC: Final = {
    "pulsar_in_messages_total": "in",
    "pulsar_in_bytes_total": "in bytes",
    "pulsar_out_messages_total": "out",
    "pulsar_msg_backlog": "backlog",
    "pulsar_storage_size": "stored",
    "pulsar_producers_count": "producers",
    "pulsar_consumers_count": "consumers",
}
_SUBSCRIPTION: Final = {
    "pulsar_subscription_back_log": "backlog",
    "pulsar_subscription_unacked_messages": "unacked",
    "pulsar_subscription_consumers_count": "consumers",
    "pulsar_subscription_msg_rate_out": "out/s",
    "magnetar_subscription_lag_messages": "lag",
    "magnetar_subscription_lag_bytes": "lag bytes",
    "magnetar_subscription_lag_seconds": "lag s",
}
_TRANSACTIONS: Final = {
    "pulsar_txn_active_count": "open",
    "magnetar_transaction_oldest_seconds": "oldest s",
}
_SLOW_S: Final = 10.0
"""Seconds after which an open transaction is shown, because it holds back the readers of its topics."""
_FIRST_S: Final = 1.0
"""Most seconds before the first table."""
_COUNTERS: Final = ("in", "in bytes", "out")


def rows_of(before: Look, now: Look, seconds: float, by: str, lines: int) -> list[dict[str, object]]:
    """Rows of the table, in descending order of the figure `by`."""
    rows: list[dict[str, object]] = []
    for key, figures in now.items():
        row: dict[str, object] = {"topic": key[0].removeprefix("persistent://")}
        if len(key) > 1:
            row["subscription"] = key[1]
        for name, value in figures.items():
            if name in _COUNTERS:
                # The counters of a topic that was loaded again start at zero.
                moved = max(0.0, value - before.get(key, {}).get(name, value))
                row[f"{name}/s"] = round(moved / seconds, 1) if seconds > 0 else 0.0
            else:
                row[name] = round(value, 1) if name.endswith(("/s", " s")) else int(value)
        rows.append(row)
    rows.sort(key=lambda row: (-_number(row.get(by)), str(row["topic"])))
    return rows[:lines]


def slow_transactions(text: str) -> str:
    """A line about the open transactions in a scrape; "" when none is open for long."""
    figures = parsed(text, _TRANSACTIONS, ())
    by_coordinator = parsed(text, _TRANSACTIONS, ("coordinator_id",))
    oldest_s = figures.get((), {}).get("oldest s", 0.0)
    if oldest_s < _SLOW_S:
        return ""
    count = sum(int(each.get("open", 0)) for each in by_coordinator.values())
    return (
        f"transactions: {count} open, the oldest for {oldest_s:.0f} s; it holds back the readers of its"
        " topics: magnetar transactions list"
    )


class TransactionsLine:
    """A line about transactions that are open for long: of all brokers of the cluster, or where they cannot
    be listed of the broker that is asked."""

    def __init__(self) -> None:
        self._listed = True

    def text(self, admin: Admin, metrics: str) -> str:
        """As of now; "" when none is open for long."""
        from magnetar.adminclient.errors import AdminRefusedError

        if self._listed:
            try:
                found = admin.call("GET", f"/admin/v3/transactions/slowTransactions/{_SLOW_S * 1000:.0f}")
            except AdminRefusedError:
                self._listed = False  # they are off, or the role may not list them
            else:
                return _slow(found, time.time())
        return slow_transactions(metrics)


def _slow(found: object, now_s: float) -> str:
    if not isinstance(found, dict) or not found:
        return ""
    begun_ms = min(each["openTimestamp"] for each in found.values())
    return (
        f"transactions: {len(found)} open for {_SLOW_S:.0f} s or longer, the oldest for"
        f" {now_s - begun_ms / 1000:.0f} s; it holds back the readers of its topics:"
        " magnetar transactions list"
    )


def _for_people(row: dict[str, object]) -> dict[str, object]:
    """The row for a terminal: bytes with units."""
    return {
        name: _size(_number(value)) if "bytes" in name or name == "stored" else value
        for name, value in row.items()
    }


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


@click.command(epilog="Example: magnetar top --by backlog")
@click.option("--subscriptions", is_flag=True, help="Show a line for each subscription.  [for each topic]")
@click.option("--by", help="Column to sort by.  [in/s, or out/s of subscriptions]")
@click.option("-n", "--lines", type=click.IntRange(min=1), default=20, help="Number of lines to show.  [20]")
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=2.0, help="Seconds between two updates.  [2]"
)
@click.option("--looks", type=click.IntRange(min=1), help="Number of updates.  [until Ctrl-C]")
@calls
def top(
    caller: Caller, subscriptions: bool, by: str | None, lines: int, interval: float, looks: int | None
) -> None:
    """Show the busiest topics or subscriptions, updated repeatedly."""
    names, labels = (_SUBSCRIPTION, ("topic", "subscription")) if subscriptions else (_TOPIC, ("topic",))
    by = by or ("out/s" if subscriptions else "in/s")
    live = caller.output == "table" and sys.stdout.isatty()
    with caller.admin() as admin:
        # The first look that is shown has rates too: those since one that is not.
        before, before_s = parsed(str(admin.call("GET", "/metrics")), names, labels), time.monotonic()
        done, transactions = 0, TransactionsLine()
        while looks is None or done < looks:
            time.sleep(interval if done else min(interval, _FIRST_S))
            text = str(admin.call("GET", "/metrics"))
            now = parsed(text, names, labels)
            now_s = time.monotonic()
            rows = rows_of(before, now, now_s - before_s, by, lines)
            before, before_s = now, now_s
            done += 1
            if live:
                click.clear()
            if caller.output == "table":
                for line in filter(None, (summary(canaries_of(text)), transactions.text(admin, text))):
                    click.echo(line)
                click.echo("\n".join(table_lines([_for_people(row) for row in rows])) or "no topic is loaded")
            else:
                caller.show(rows)

"""Which ledgers of a log may be deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from magnetar.base.ids import Position
from magnetar.managedlog.config import UNLIMITED, Retention
from magnetar.managedlog.ledger_list import Ledger


def removable(
    ledgers: Sequence[Ledger],
    *,
    mark_deletes: Iterable[Position],
    size_bytes: int,
    retention: Retention,
    times: Sequence[int],
    now_ms: int,
) -> int:
    """How many of the first `ledgers` are consumed by every durable cursor and not retained.

    Never the last ledger, nor one that is not complete; ledgers that share an object of history are deleted
    together. Without cursors all ledgers count as consumed. `size_bytes` is that of the whole log, `times`
    are the believed times of the ledgers (`broker_times`).
    """
    slowest = min(mark_deletes, default=None)
    count = 0
    for ledger, time_ms in zip(ledgers[:-1], times, strict=False):
        if not ledger.complete:
            break
        if slowest is not None and slowest < Position(ledger.ledger_id, ledger.entries - 1):
            break
        expired = retention.ms != UNLIMITED and (retention.ms == 0 or now_ms - time_ms > retention.ms)
        # The remaining ledgers must still fill the quota, else more is deleted than asked for.
        too_large = retention.size_bytes != UNLIMITED and (
            retention.size_bytes == 0 or size_bytes - ledger.size_bytes >= retention.size_bytes
        )
        if not (expired or too_large):
            break
        size_bytes -= ledger.size_bytes
        count += 1
    while count and _shares_object(ledgers[count - 1], ledgers[count]):
        # An object of several ledgers is deleted as a whole: tables name it or do not.
        count -= 1
    return count


def _shares_object(ledger: Ledger, following: Ledger) -> bool:
    one, other = ledger.offload, following.offload
    return one is not None and other is not None and one.attempt == other.attempt

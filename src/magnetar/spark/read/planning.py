"""Plans the part of the backlog for one trigger, and the pieces in which it is read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

BYTES_PER_PARTITION: Final = 32 << 20
"""Size of a task's range without options: about one second of work for one core."""


TASKS_MIN: Final = 32
"""Up to this number of ranges, each has its own task. More ranges share tasks, as each task costs tens of
milliseconds, whatever its size."""


def groups(sizes_bytes: Sequence[int]) -> list[range]:
    """Which ranges, of these estimated sizes, one task each reads: neighbours, so that there are TASKS_MIN
    tasks or more, none of which has more than BYTES_PER_PARTITION unless one range has."""
    at_most = -(-len(sizes_bytes) // TASKS_MIN)
    found: list[range] = []
    first = taken_bytes = 0
    for number, size_bytes in enumerate(sizes_bytes):
        full = number - first == at_most or taken_bytes + size_bytes > BYTES_PER_PARTITION
        if number > first and full:
            found.append(range(first, number))
            first, taken_bytes = number, 0
        taken_bytes += size_bytes
    if sizes_bytes:
        found.append(range(first, len(sizes_bytes)))
    return found


def share(limit: int, backlogs: Mapping[str, int]) -> dict[str, int]:
    """Divides `limit` among the backlogs, in proportion; a part is never larger than its backlog.

    The sum of the parts is the smaller of the limit and the sum of the backlogs. The first backlogs get the
    remainder of the rounding, so that at least one part is above 0.
    """
    total = sum(backlogs.values())
    if total <= limit:
        return dict(backlogs)
    parts = {name: limit * backlog // total for name, backlog in backlogs.items()}
    left = limit - sum(parts.values())
    for name, backlog in backlogs.items():
        if left == 0:
            break
        if parts[name] < backlog:
            parts[name] += 1
            left -= 1
    return parts


def pieces_of(
    rows: Sequence[int],
    sizes_bytes: Sequence[int],
    *,
    partitions_min: int | None,
    rows_per_partition_max: int | None,
) -> list[int]:
    """The number of tasks for each range, from estimates of its rows and bytes.

    Without options: one per BYTES_PER_PARTITION.
    """
    pieces = []
    total = sum(rows)
    for count, size_bytes in zip(rows, sizes_bytes, strict=True):
        wanted = 1
        if rows_per_partition_max is None and partitions_min is None:
            wanted = -(-size_bytes // BYTES_PER_PARTITION)
        if rows_per_partition_max is not None:
            wanted = -(-count // rows_per_partition_max)
        if partitions_min is not None and total:
            wanted = max(wanted, -(-partitions_min * count // total))
        pieces.append(max(wanted, 1))
    return pieces


class TriggerDelay:
    """Delays a trigger until enough rows are unread, or until the longest delay has passed."""

    def __init__(self, rows_min: int, delay_ms: int, now_ms: int) -> None:
        self._rows_min = rows_min
        self._delay_ms = delay_ms
        self._since_ms = now_ms
        """Time of the last trigger that was not delayed, or of the start of the query."""

    def holds(self, rows: int, now_ms: int) -> bool:
        """Whether a trigger with `rows` has to wait for more. `now_ms` is from a monotonic clock."""
        return rows < self._rows_min and now_ms - self._since_ms < self._delay_ms

    def let_through(self, now_ms: int) -> None:
        """Notes that a trigger with rows begins; the delay of the next one is counted from now."""
        self._since_ms = now_ms

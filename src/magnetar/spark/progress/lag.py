"""How far a query is behind each topic, from the offsets in its progress. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.base.names import InvalidTopicNameError, TopicName
from magnetar.spark.errors import OptionError
from magnetar.spark.read.offsets import Offset, decode_offsets

OBSERVATIONS_MAX: Final = 1000
"""Number of remembered ends per partition; each batch adds at most one."""


@dataclass(frozen=True, slots=True)
class TopicLag:
    """How far a query is behind the end of a topic; None where that is unknown."""

    topic: str
    """Full name, partitions taken together."""
    rows: int | None = None
    seconds: float | None = None
    """Age of the oldest unread message; 0 when all are read."""
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """The read position of one partition, and its end."""

    read: Offset
    end: Offset

    @property
    def rows(self) -> int | None:
        """Unread messages; None when the broker keeps no index."""
        if self.read.position >= self.end.position:
            return 0
        if self.read.message_index is None or self.end.message_index is None:
            return None
        return max(self.end.message_index - self.read.message_index, 0)


def reaches(end: object, latest: object) -> dict[TopicName, Reach]:
    """Each partition's reach, from a source's `endOffset` and `latestOffset`.

    Empty for a source that is not ours: its offsets look different.
    """
    if not isinstance(end, Mapping) or not isinstance(latest, Mapping):
        return {}
    try:
        read, there = decode_offsets(end), decode_offsets(latest)
        return {
            TopicName.parse(topic): Reach(offset, there.get(topic, offset)) for topic, offset in read.items()
        }
    except (OptionError, InvalidTopicNameError, TypeError, AttributeError):
        return {}


def rows_behind(found: Mapping[TopicName, Reach]) -> dict[str, int | None]:
    """Unread messages by topic, summed over its partitions; None when one of them is unknown."""
    sums: dict[str, int | None] = {}
    for topic, reach in found.items():
        base = str(topic.base)
        before, rows = sums.get(base, 0), reach.rows
        sums[base] = None if before is None or rows is None else before + rows
    return sums


class SeenEnds:
    """Computes the lag in seconds from the time when each end was first seen, without requests.

    The result is exact to the interval between two checks. It is the time since the first check when older
    messages are unread.
    """

    def __init__(self) -> None:
        self._ends: dict[TopicName, deque[tuple[float, Offset]]] = {}

    def note(self, topic: TopicName, end: Offset, now_s: float) -> None:
        """Notes that the partition ends at `end` at the time `now_s`."""
        seen = self._ends.setdefault(topic, deque(maxlen=OBSERVATIONS_MAX))
        if not seen or seen[-1][1].position < end.position:
            seen.append((now_s, end))

    def seconds(self, topic: TopicName, read: Offset, now_s: float) -> float:
        """Seconds since an end behind `read` was first seen; 0 when nothing is unread."""
        seen = self._ends.get(topic, ())
        return next((now_s - at_s for at_s, end in seen if end.position > read.position), 0.0)

"""Where reading starts and ends, from what the options say."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.spark.cluster import Cluster
from magnetar.spark.errors import OptionError, TopicDataLossError
from magnetar.spark.ledgers import LogState
from magnetar.spark.offsets import FROM_EARLIEST, Offset, parse_offsets_option
from magnetar.spark.options import ReadOptions
from magnetar.spark.planning import lost_range
from magnetar.spark.timestamps import parse_time


class Bounds:
    """Turns the options' starts and ends into offsets."""

    def __init__(self, cluster: Cluster, options: ReadOptions, now_ms: int) -> None:
        self._cluster = cluster
        self._options = options
        self._now_ms = now_ms

    def starts(self, states: Mapping[str, LogState], *, default: str) -> dict[str, Offset]:
        """The offset of every partition to start from. Raises OptionError."""
        options = self._options
        return self._resolve(
            states,
            ("startingOffsets", options.starting_offsets, default),
            ("startingTimestamp", options.starting_timestamp),
        )

    def ends(self, states: Mapping[str, LogState]) -> dict[str, Offset]:
        """The offset of every partition to end at, for a batch. Raises OptionError."""
        options = self._options
        found = self._resolve(
            states,
            ("endingOffsets", options.ending_offsets, "latest"),
            ("endingTimestamp", options.ending_timestamp),
        )
        # An end behind the last entry would be waited for.
        return {
            topic: offset if offset.position <= states[topic].end else Offset(states[topic].end, None)
            for topic, offset in found.items()
        }

    def _resolve(
        self, states: Mapping[str, LogState], offsets: tuple[str, str, str], timestamp: tuple[str, str]
    ) -> dict[str, Offset]:
        name, text, default = offsets
        time_name, time_text = timestamp
        if text and time_text:
            raise OptionError(f"{name} and {time_name} are given; one of them is enough")
        if time_text:
            self._cluster.need_admin(time_name)
            time_ms = parse_time(time_name, time_text, self._now_ms)
            return {
                topic: Offset(self._cluster.start_of_time(TopicName.parse(topic), state, time_ms), None)
                for topic, state in states.items()
            }
        if (text or default).lower() in ("earliest", "latest"):
            return {topic: _named((text or default).lower(), state) for topic, state in states.items()}
        given = parse_offsets_option(name, text, map(TopicName.parse, states))
        # Partitions that are not named: all of them.
        rest = "latest" if name == "endingOffsets" else "earliest"
        found = {}
        for topic, state in states.items():
            place = given.get(topic, rest)
            found[topic] = _named(place, state) if isinstance(place, str) else place
        return found

    def check_loss(self, topic: TopicName, state: LogState, start: Offset) -> None:
        """Raises TopicDataLossError when entries from `start` on are gone and that is not allowed."""
        if not self._options.fail_on_data_loss or not state.is_complete:
            return
        if start.position <= EARLIEST or start.position >= state.first:
            return
        first_index = state.first_index_at(state.first)
        if first_index is None and state.ledgers and start.message_index is not None:
            found = self._cluster.indexes_at(topic, state.first)
            first_index = None if found is None else found[1]
        if lost_range(state, start.message_index, first_index):
            raise TopicDataLossError(str(topic), str(start), str(state.first))


def _named(place: str, state: LogState) -> Offset:
    if place == "latest":
        return Offset(state.end, None)
    if not state.is_complete:
        return FROM_EARLIEST
    first = state.first
    return Offset(Position(*first), state.first_index_at(first))

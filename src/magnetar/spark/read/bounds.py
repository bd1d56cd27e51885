"""Computes from the options where reading starts and ends."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.base.names import TopicName
from magnetar.spark.cluster import SparkCluster
from magnetar.spark.errors import OptionError, TopicDataLossError
from magnetar.spark.read.losses import beginning, loss, needs_first_index, remainder
from magnetar.spark.read.offsets import (
    AtTime,
    Offset,
    Place,
    parse_place,
    parse_places_option,
)
from magnetar.spark.read.read_options import ReadOptions
from magnetar.spark.timestamps import parse_time
from magnetar.tables.ledgers import KnownLog


class ReadBounds:
    """Turns the options' starts and ends into offsets."""

    def __init__(self, cluster: SparkCluster, options: ReadOptions, now_ms: int) -> None:
        self._cluster = cluster
        self._options = options
        self._now_ms = now_ms

    def starts(self, states: Mapping[str, KnownLog], *, default: str) -> dict[str, Offset]:
        """The start offset of each partition. Raises OptionError."""
        options = self._options
        return self._resolve(
            states,
            ("startingOffsets", options.starting_offsets, default),
            ("startingTimestamp", options.starting_timestamp),
        )

    def ends(self, states: Mapping[str, KnownLog]) -> dict[str, Offset]:
        """The end offset of each partition, for a batch. Raises OptionError."""
        options = self._options
        found = self._resolve(
            states,
            ("endingOffsets", options.ending_offsets, "latest"),
            ("endingTimestamp", options.ending_timestamp),
        )
        # The query would wait for an end behind the last entry.
        return {
            topic: offset if offset.position <= states[topic].end else Offset(states[topic].end, None)
            for topic, offset in found.items()
        }

    def _resolve(
        self, states: Mapping[str, KnownLog], offsets: tuple[str, str, str], timestamp: tuple[str, str]
    ) -> dict[str, Offset]:
        name, text, default = offsets
        time_name, time_text = timestamp
        if text and time_text:
            raise OptionError(f"{name} and {time_name} are given; one of them is enough")
        places: dict[str, Place]
        # Partitions that the option does not name are read whole.
        rest: Place = "latest" if name.startswith("ending") else "earliest"
        given = time_text or text or default
        if given.startswith("{"):
            topics = map(TopicName.parse, states)
            option = time_name if time_text else name
            places = parse_places_option(option, given, topics, times=bool(time_text))
        else:
            places = {}
            rest = AtTime(time_text) if time_text else parse_place(name, given)
            if isinstance(rest, Offset):
                raise OptionError(
                    f'{name}={text!r}: positions are given by topic, as in {{"topic": {{"0": "12:3400"}}}}'
                )
        option = time_name if time_text else name
        return {topic: self._at(option, places.get(topic, rest), topic, states[topic]) for topic in states}

    def _at(self, option: str, place: Place, topic: str, state: KnownLog) -> Offset:
        """The offset of a place in one partition."""
        if isinstance(place, Offset):
            return place
        if isinstance(place, str):
            return _named(place, state)
        self._cluster.need_admin(option)
        name = TopicName.parse(topic)
        if isinstance(place, AtTime):
            time_ms = parse_time(option, place.text, self._now_ms)
            return Offset(self._cluster.start_of_time(name, state, time_ms), None)
        found = self._cluster.client.admin.position_by_index(name, place.number)
        return Offset(state.end, None) if found is None else Offset(found, None)

    def after_loss(
        self, topic: TopicName, state: KnownLog, start: Offset, *, is_named: bool = False
    ) -> Offset:
        """Returns `start`, or the next existing offset when entries are lost and the options allow it.

        `is_named`: `start` comes from the options, not from a checkpoint.
        Raises TopicDataLossError when entries are lost and the options do not allow it.
        """
        first_index = state.first_index
        if needs_first_index(state, start):
            found = self._cluster.indexes_at(topic, state.first)
            first_index = None if found is None else found[1]
        gone = loss(state, start, first_index, is_named=is_named)
        if not gone:
            return start
        if not self._options.fail_on_data_loss:
            return remainder(state, start, first_index)
        rule = self._cluster.client.admin.removal_rule(topic)
        raise TopicDataLossError(str(topic), str(start), gone, rule=rule)


def _named(place: str, state: KnownLog) -> Offset:
    if place == "latest" and (state.ledgers or not state.is_complete):
        return Offset(state.end, None)
    return beginning(state)

"""The target topics of rows, and their partitions."""

from __future__ import annotations

from magnetar.base.ids import Position
from magnetar.base.names import InvalidTopicNameError, TopicName
from magnetar.client.client import Client
from magnetar.client.errors import RefusedError
from magnetar.client.reader import last_position
from magnetar.spark.errors import SparkSourceError
from magnetar.wire import pulsar_pb2 as pb


def target_partitions(client: Client, target: TopicName) -> dict[int, TopicName]:
    """The partitions of a topic by number; {-1: topic} for one without."""
    count = client.partitions(target) if target.partition < 0 else 0
    return {number: target.with_partition(number) for number in range(count)} or {-1: target}


def end_of(client: Client, topic: TopicName) -> Position | None:
    """Position of the last message; None when the topic is empty or does not exist."""
    try:
        return last_position(client, topic)
    except RefusedError as error:
        if error.code == pb.ServerError.TopicNotFound:
            return None
        raise


class Targets:
    """Finds the partitions for `StagedEntry.topic` and `StagedEntry.partition`, with one request per
    topic."""

    def __init__(self, client: Client, only: str) -> None:
        """`only`: the target of all rows; empty when each row names its target."""
        self._client = client
        self._only = only
        self._partitions: dict[str, dict[int, TopicName]] = {}

    def partitions(self, topic: str) -> dict[int, TopicName]:
        """The partitions of a topic by number; of the only target when `topic` is empty."""
        found = self._partitions.get(topic)
        if found is None:
            name = TopicName.parse(topic or self._only)
            found = self._partitions[topic] = target_partitions(self._client, name)
        return found

    def partition(self, topic: str, number: int) -> TopicName:
        """One partition of a topic. Raises SparkSourceError when it does not exist."""
        found = self.partitions(topic).get(number)
        if found is None:
            raise SparkSourceError(
                f"rows were made for partition {number} of {topic or self._only}, which it does not have"
            )
        return found


def topic_of(text: str) -> str:
    """Full name of the topic that a row names. Raises SparkSourceError when the name is not valid."""
    try:
        topic = TopicName.parse(text)
    except InvalidTopicNameError as error:
        raise SparkSourceError(f"column topic: {error}") from error
    return str(topic)

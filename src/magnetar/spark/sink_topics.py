"""Names of the sink's own topics, which it keeps beside the target."""

from __future__ import annotations

from typing import Final

from magnetar.base.names import PERSISTENT, TopicName
from magnetar.spark.write.sink_options import WriteOptions

_MARK: Final = "-magnetar-sink-"
SUBSCRIPTION: Final = "magnetar-sink"
"""Subscription that keeps the messages that the sink still needs; the broker can remove the others."""


def home_of(options: WriteOptions) -> TopicName:
    """The topic beside which the sink keeps its own topics: the target, or a fixed name when rows name
    theirs."""
    if options.topic:
        return TopicName.parse(options.topic)
    namespace = options.namespace
    return TopicName.of(PERSISTENT, namespace.tenant, namespace.namespace, "topics")


def commits_topic(target: TopicName, sink_id: str) -> TopicName:
    """The topic for the commit log of the sink."""
    return _helper(target, sink_id, "commits")


def staging_topic(target: TopicName, sink_id: str) -> TopicName:
    """The topic for rows of tasks that are too many for a commit message."""
    return _helper(target, sink_id, "staging")


def _helper(target: TopicName, sink_id: str, kind: str) -> TopicName:
    base = target.base
    local = f"{target.local}{_MARK}{sink_id}-{kind}"
    return TopicName.of(PERSISTENT, base.tenant, base.namespace, local)


def is_sink_topic(topic: TopicName) -> bool:
    """Whether the topic is one of a sink's own, which patterns do not match."""
    return _MARK in topic.local

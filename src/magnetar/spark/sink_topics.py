"""Topics that the sink keeps for itself, beside the target."""

from __future__ import annotations

from typing import Final

from magnetar.base.names import PERSISTENT, TopicName
from magnetar.spark.write.sink_options import WriteOptions

_MARK: Final = "-magnetar-sink-"
SUBSCRIPTION: Final = "magnetar-sink"
"""Keeps what the sink still needs and lets the broker remove the rest."""


def home_of(options: WriteOptions) -> TopicName:
    """The topic beside which the sink keeps its own: the target, or a name that stands for many."""
    if options.topic:
        return TopicName.parse(options.topic)
    namespace = options.namespace
    return TopicName.of(PERSISTENT, namespace.tenant, namespace.namespace, "topics")


def commits_topic(target: TopicName, sink_id: str) -> TopicName:
    """Where the sink writes down what each batch consists of."""
    return _helper(target, sink_id, "commits")


def staging_topic(target: TopicName, sink_id: str) -> TopicName:
    """Where tasks put rows that are too many for a commit message."""
    return _helper(target, sink_id, "staging")


def _helper(target: TopicName, sink_id: str, kind: str) -> TopicName:
    base = target.base
    local = f"{target.local}{_MARK}{sink_id}-{kind}"
    return TopicName.of(PERSISTENT, base.tenant, base.namespace, local)


def is_sink_topic(topic: TopicName) -> bool:
    """Whether the topic is one of these; patterns leave them out."""
    return _MARK in topic.local

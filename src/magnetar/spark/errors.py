"""Errors of the Spark source and sink."""

from __future__ import annotations

from magnetar.base.errors import MagnetarError


class SparkSourceError(MagnetarError):
    """The source or the sink is used wrongly; the message says what is right."""


class OptionError(SparkSourceError):
    """An option is unknown, missing or has a bad value."""


class DeduplicationError(OptionError):
    """Deduplication could not be switched on. `retriable` is that of the failed call to the admin
    interface."""

    def __init__(self, detail: str, *, retriable: bool) -> None:
        super().__init__(detail)
        self.retriable = retriable


class TopicDataLossError(SparkSourceError):
    """Entries that the query has not read are deleted, or cannot be proved to exist."""

    def __init__(self, topic: str, start: str, gone: str, *, rule: str = "") -> None:
        """`gone`: the lost entries, in words. `rule`: what the namespace removes, in words."""
        super().__init__(
            f"data loss: {topic} should be read from {start} on, but {gone}."
            f" {rule or 'The rules of its namespace could not be read.'} Give the query a `subscription`,"
            " which keeps entries until it has read them, or raise the retention; set failOnDataLoss=false to"
            " go on without them."
        )
        self.topic = topic

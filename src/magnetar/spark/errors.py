"""What the Spark source and sink refuse."""

from __future__ import annotations

from magnetar.base.errors import MagnetarError


class SparkSourceError(MagnetarError):
    """Wrong use of the source or the sink; the message says what is right."""


class OptionError(SparkSourceError):
    """An option is unknown, missing or has a bad value."""


class DeduplicationError(OptionError):
    """Deduplication could not be asked for. `retriable` as the failed call to the admin interface was."""

    def __init__(self, detail: str, *, retriable: bool) -> None:
        super().__init__(detail)
        self.retriable = retriable


class TopicDataLossError(SparkSourceError):
    """Entries that the query has not read are gone, or cannot be shown to be there."""

    def __init__(self, topic: str, start: str, gone: str, *, rule: str = "") -> None:
        """`gone` says what is, `rule` what the namespace removes, in words."""
        super().__init__(
            f"data loss: {topic} should be read from {start} on, but {gone}."
            f" {rule or 'The rules of its namespace could not be read.'} Give the query a `subscription`,"
            " which keeps entries until it has read them, or raise the retention; set failOnDataLoss=false to"
            " go on without them."
        )
        self.topic = topic

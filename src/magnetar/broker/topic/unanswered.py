"""What a producer sent and was not answered yet."""

from __future__ import annotations

from magnetar.base.ids import Position
from magnetar.broker.errors import RefusedError
from magnetar.broker.topic.producer import Producer


class Unanswered:
    """Rows of one producer that wait for the log, or duplicates that wait for their turn."""

    __slots__ = (
        "count",
        "highest_ids",
        "mark",
        "position",
        "producer",
        "refusal",
        "sequence_ids",
        "size_bytes",
    )

    def __init__(
        self,
        producer: Producer,
        sequence_ids: list[int],
        highest_ids: list[int] | None,
        position: Position | None,
        count: int,
        size_bytes: int,
        mark: int,
        *,
        refusal: RefusedError | None = None,
    ) -> None:
        self.producer = producer
        self.sequence_ids = sequence_ids
        self.highest_ids = highest_ids
        self.position = position
        """Of the first entry; None for duplicates."""
        self.count = count
        self.size_bytes = size_bytes
        self.refusal = refusal
        """Why the rows were refused, which they are told in their turn; None: they were not."""
        self.mark = mark
        """Highest sequence number that is known for good once this is durable; -1: none."""

"""SENDs of producers that were not answered yet, in the order of their answers (pure)."""

from __future__ import annotations

from collections import deque

from magnetar.base.ids import Position
from magnetar.broker.errors import RefusedError
from magnetar.broker.topic.producer import Producer


class Unanswered:
    """Rows of one producer that wait for the log, or duplicates that wait for their turn."""

    __slots__ = (
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
        size_bytes: int,
        mark: int,
        *,
        refusal: RefusedError | None = None,
    ) -> None:
        self.producer = producer
        self.sequence_ids = sequence_ids
        self.highest_ids = highest_ids
        self.position = position
        """Position of the first entry, which the others follow; None for duplicates."""
        self.size_bytes = size_bytes
        self.refusal = refusal
        """Why the rows were refused, which their producer is told in order; None: they were not."""
        self.mark = mark
        """Highest sequence number that is known for good once this is durable; -1: none."""

    @property
    def count(self) -> int:
        """How many rows there are; each of them that was stored is one entry."""
        return len(self.sequence_ids)


class ReceiptLine:
    """The answers that a topic owes, in the order of the SENDs.

    A receipt that overtakes another one of its producer makes the client believe that the missing message was
    lost. So answers that need no log (duplicates, refusals) wait in the same line.
    """

    __slots__ = ("_items",)

    def __init__(self) -> None:
        # Bounded by the bytes that are read and not durable (`intake.py`), each of at least one entry.
        self._items: deque[Unanswered] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Unanswered) -> None:
        """The last one of the line."""
        assert item.refusal is None or item.position is None, "a refused message was stored"
        assert item.sequence_ids, "an answer without a row"
        self._items.append(item)

    def pop(self, durable: Position) -> Unanswered | None:
        """The next answer that is possible while the log is durable up to `durable`; None: the first one
        waits for the log."""
        items = self._items
        if not items:
            return None
        head = items[0]
        position = head.position
        if position is not None and (position[0], position[1] + len(head.sequence_ids) - 1) > durable:
            return None
        return items.popleft()

    def clear(self) -> list[Unanswered]:
        """All waiting answers, in order; the line is empty after."""
        items, self._items = list(self._items), deque()
        return items

    def mark_of(self, producer_name: str) -> int:
        """The highest sequence number of the producer that is under way; -1: none."""
        return max([item.mark for item in self._items if item.producer.name == producer_name], default=-1)

    @property
    def stored(self) -> bool:
        """Whether any answer waits for the log."""
        return any(item.position is not None for item in self._items)

    def check(self) -> None:
        """Asserts what must always hold."""
        stored = [item.position for item in self._items if item.position is not None]
        assert stored == sorted(set(stored)), "receipts would leave out of order"
        assert all(item.size_bytes >= 0 for item in self._items), "bytes are given back that were not taken"

"""Which sequence numbers are new. Pure: no log, no clock."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """Rows `start <= i < stop` of a publish vector that share a verdict."""

    start: int
    stop: int
    duplicate: bool


class DedupState:
    """Highest sequence numbers per producer name."""

    def __init__(self, persisted: dict[str, int] | None = None) -> None:
        self._persisted: dict[str, int] = dict(persisted or {})
        """Highest number that is durable."""
        self._pushed: dict[str, int] = dict(self._persisted)
        """Highest number handed to the log; >= the durable one."""

    def last_sequence(self, producer: str) -> int:
        """Highest durable sequence number; -1 when the producer is unknown."""
        return self._persisted.get(producer, -1)

    def snapshot(self) -> dict[str, int]:
        """Highest durable number of every known producer."""
        return dict(self._persisted)

    def admit(
        self,
        producer: str,
        sequence_ids: list[int],
        highest_ids: list[int] | None,
        partial: list[bool] | None = None,
    ) -> list[Span] | None:
        """Decides for each row and notes what is new as pushed; None when everything is.

        Args:
            sequence_ids: of each row; for a batch, of its first message.
            highest_ids: of each row's last message; None when every row is one message.
            partial: for each row, whether it is a piece of a chunked message other than the last.
        """
        mark = self._pushed.get(producer, -1)
        spans: list[Span] = []
        duplicates = False
        for i, sequence in enumerate(sequence_ids):
            duplicate = sequence <= mark
            if not duplicate and not (partial is not None and partial[i]):
                mark = sequence if highest_ids is None else max(sequence, highest_ids[i])
            duplicates |= duplicate
            if spans and spans[-1].duplicate is duplicate:
                spans[-1] = spans[-1]._replace(stop=i + 1)
            else:
                spans.append(Span(i, i + 1, duplicate))
        self._pushed[producer] = mark
        return spans if duplicates else None

    def persisted(self, producer: str, highest: int) -> None:
        """Everything of the producer up to `highest` is durable."""
        if highest > self._persisted.get(producer, -1):
            self._persisted[producer] = highest
            if highest > self._pushed.get(producer, -1):
                self._pushed[producer] = highest

    def forget_pushed(self, producer: str) -> None:
        """An append failed: only what is durable counts."""
        if producer in self._persisted:
            self._pushed[producer] = self._persisted[producer]
        else:
            self._pushed.pop(producer, None)

    def check(self) -> None:
        """Walks the invariant: nothing is durable that was not pushed."""
        for producer, persisted in self._persisted.items():
            assert persisted <= self._pushed[producer], producer

"""Which sequence numbers are new. Pure: no log, no clock."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """Rows `start <= i < stop` of a publish vector that share a verdict."""

    start: int
    stop: int
    duplicate: bool


def sequence_marks(
    sequence_ids: list[int],
    highest_ids: list[int] | None,
    counts: list[int] | None,
    pieces_to_come: list[bool] | None = None,
) -> list[int]:
    """The highest sequence number that each row is known to contain; -1 for a piece of a message.

    A batch whose producer names no highest number (C++ clients) holds as many ascending numbers as
    messages, so its last one is at least first + count - 1; never more is assumed. A chunked message
    is complete, and its number used up, with its last piece.
    """
    marks = sequence_ids
    if counts is not None:
        marks = [sequence + count - 1 for sequence, count in zip(sequence_ids, counts, strict=True)]
    if highest_ids is not None:
        marks = [max(pair) for pair in zip(marks, highest_ids, strict=True)]
    if pieces_to_come is not None:
        marks = [-1 if more else mark for mark, more in zip(marks, pieces_to_come, strict=True)]
    return marks


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

    def admit(self, producer: str, sequence_ids: list[int], marks: list[int]) -> list[Span] | None:
        """Decides for each row and notes what is new as pushed; None when everything is new.

        Args:
            sequence_ids: of each row; for a batch, of its first message.
            marks: what each row proves to have been sent, see `sequence_marks`.
        """
        pushed = self._pushed.get(producer, -1)
        spans: list[Span] = []
        duplicates = False
        for i, sequence in enumerate(sequence_ids):
            duplicate = sequence <= pushed
            if not duplicate and marks[i] > pushed:
                pushed = marks[i]
            duplicates |= duplicate
            if spans and spans[-1].duplicate is duplicate:
                spans[-1] = spans[-1]._replace(stop=i + 1)
            else:
                spans.append(Span(i, i + 1, duplicate))
        self._pushed[producer] = pushed
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

"""Which sequence numbers are new. Pure: no log, no clock."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from magnetar.wire.events import SEQUENCE_IDS_END

SNAPSHOT_INTERVAL_POLICY: Final = "deduplicationSnapshotIntervalSeconds"
"""Key of the policy of a namespace or topic (Pulsar's name)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupLimits:
    """How many producers are remembered, and how often they are stored. Defaults are Pulsar's except for the
    entries."""

    producers_max: int = 10_000
    """Producers remembered per topic, besides attached ones: those that detached first are forgotten
    first."""
    inactivity_ms: int = 360 * 60_000
    """A producer that was detached for this many milliseconds is forgotten."""
    snapshot_entries: int = 20_000
    """Entries after which the state is stored: loading replays as many in about a tenth of a second."""
    snapshot_ms: int = 120_000
    """Milliseconds after which new state is stored; checked once per maintenance round. 0 or less: never by
    time."""

    def with_interval(self, *policies: Mapping[str, object]) -> DedupLimits:
        """With the snapshot interval, in seconds, of the first of `policies` that has one."""
        for document in policies:
            if isinstance(seconds := document.get(SNAPSHOT_INTERVAL_POLICY), int):
                return replace(self, snapshot_ms=seconds * 1000)
        return self


class Span(NamedTuple):
    """Rows `start <= i < stop` of a publish vector that share a verdict."""

    start: int
    stop: int
    duplicate: bool
    known: int = -1
    """For a batch that is new in part, a span of its own: its messages up to this number are duplicates."""


def sequence_marks(
    sequence_ids: list[int],
    highest_ids: list[int] | None,
    counts: list[int] | None,
    pieces_to_come: list[bool] | None = None,
) -> list[int]:
    """The highest sequence number that each row is certain to contain; -1 for a chunk of a message.

    A batch whose producer names no highest number (C++ clients) holds as many ascending numbers as messages,
    so its last one is at least first + count - 1; no more is assumed. A chunked message is complete, and its
    number used, with its last chunk.
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
        self._away_since: dict[str, int] = {}
        """When a producer was first seen not to be attached, ms of a clock that only runs; ascending."""

    def __len__(self) -> int:
        return len(self._persisted)

    def last_sequence(self, producer: str) -> int:
        """Highest durable sequence number; -1 when the producer is unknown."""
        self._away_since.pop(producer, None)
        return self._persisted.get(producer, -1)

    def snapshot(self) -> dict[str, int]:
        """Highest durable number of every known producer, those that detached first in front."""
        persisted = self._persisted
        return {**{name: persisted[name] for name in self._away_since}, **persisted}

    def admit(self, producer: str, sequence_ids: list[int], marks: list[int]) -> list[Span] | None:
        """Decides for each row, and records new rows as pushed; None when all rows are new.

        Args: sequence_ids: of each row; for a batch, of its first message. marks: the highest number of each
        row, see `sequence_marks`.
        """
        pushed = self._pushed.get(producer, -1)
        spans: list[Span] = []
        duplicates = False
        for i, sequence in enumerate(sequence_ids):
            if sequence <= pushed < marks[i]:
                spans.append(Span(i, i + 1, duplicate=False, known=pushed))
                pushed = marks[i]
                duplicates = True
                continue
            duplicate = sequence <= pushed
            if not duplicate and marks[i] > pushed:
                pushed = marks[i]
            duplicates |= duplicate
            if spans and spans[-1].duplicate is duplicate and spans[-1].known < 0:
                spans[-1] = spans[-1]._replace(stop=i + 1)
            else:
                spans.append(Span(i, i + 1, duplicate))
        self._pushed[producer] = pushed
        return spans if duplicates else None

    def persisted(self, producer: str, highest: int) -> None:
        """All messages of the producer up to `highest` are durable.

        A number that is out of range is ignored: older versions let it into the log, no snapshot can hold it,
        and all later numbers of the producer would count as duplicates.
        """
        if SEQUENCE_IDS_END > highest > self._persisted.get(producer, -1):
            self._persisted[producer] = highest
            if highest > self._pushed.get(producer, -1):
                self._pushed[producer] = highest
        if self._away_since:
            self._away_since.pop(producer, None)

    def forget_pushed(self, producer: str, under_way: int = -1) -> None:
        """An append failed: what is durable counts, and what is still `under_way` up to that number."""
        pushed = max(self._persisted.get(producer, -1), under_way)
        if pushed >= 0:
            self._pushed[producer] = pushed
        else:
            self._pushed.pop(producer, None)

    def retire(self, attached: Container[str], now_ms: int, limits: DedupLimits) -> int:
        """Forgets detached producers: those detached for long, and the first of too many.

        `now_ms` is of a monotonic clock: one that is set ahead would make all detached producers be
        forgotten.

        A producer with numbers in flight stays, or its resent messages would count as new. Returns how many
        were forgotten. Costs a pass over all known producers.
        """
        away = self._away_since
        for name in self._persisted:
            if name in attached:
                away.pop(name, None)
            else:
                away.setdefault(name, now_ms)
        excess = len(away) - limits.producers_max
        gone = 0
        for name, since in list(away.items()):
            if gone >= excess and now_ms - since < limits.inactivity_ms:
                break
            if self._pushed[name] == self._persisted[name]:
                del away[name], self._pushed[name], self._persisted[name]
                gone += 1
        return gone

    def check(self) -> None:
        """Asserts the invariants: nothing is durable that was not pushed; the detached producers are known,
        in order."""
        for producer, persisted in self._persisted.items():
            assert persisted <= self._pushed[producer], producer
        assert self._away_since.keys() <= self._persisted.keys()
        times = list(self._away_since.values())
        assert times == sorted(times)

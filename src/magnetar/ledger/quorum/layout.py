"""Which bookies of an ensemble hold which entries, and what is certain once some of them have answered.

Entry e of a ledger is on the members e, e + 1, ... e + Qw - 1 of its ensemble, modulo E. It is confirmed when
Qa of them have it.

Source: BookKeeper replication protocol, striping and quorum coverage.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class QuorumLayout:
    """Sizes of a ledger's quorums: ensemble_size >= write_quorum >= ack_quorum >= 1."""

    ensemble_size: int
    """E: members of an ensemble."""
    write_quorum: int
    """Qw: copies of an entry."""
    ack_quorum: int
    """Qa: copies that must be durable before an entry is confirmed."""

    def __post_init__(self) -> None:
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1:
            raise ValueError(
                f"quorums must be E >= Qw >= Qa >= 1, not E={self.ensemble_size}, "
                f"Qw={self.write_quorum}, Qa={self.ack_quorum}"
            )

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        """Indexes of the members that hold the entry, the first one to be read first."""
        return _write_set(self.ensemble_size, self.write_quorum, entry_id % self.ensemble_size)

    def holds(self, index: int, entry_id: int) -> bool:
        """Whether the member at `index` holds the entry."""
        return (index - entry_id) % self.ensemble_size < self.write_quorum

    def can_confirm_without(self, out: Collection[int]) -> bool:
        """Whether each entry has Qa holders among the members that are not in `out`."""
        return all(
            sum(index not in out for index in self.write_set(first)) >= self.ack_quorum
            for first in range(self.ensemble_size)
        )

    @property
    def absence_quorum(self) -> int:
        """How many members must certainly lack an entry before it can never be confirmed."""
        return self.write_quorum - self.ack_quorum + 1


@lru_cache(maxsize=1024)
def _write_set(ensemble_size: int, write_quorum: int, first: int) -> tuple[int, ...]:
    return tuple((first + at) % ensemble_size for at in range(write_quorum))


class Coverage:
    """Collects answers from an ensemble until no entry could have been confirmed by the rest alone."""

    __slots__ = ("_known", "_layout")

    def __init__(self, layout: QuorumLayout) -> None:
        self._layout = layout
        self._known: set[int] = set()

    def know(self, index: int) -> None:
        """The member at `index` gave a certain answer."""
        self._known.add(index)

    @property
    def is_reached(self) -> bool:
        """Whether every write set has fewer than Qa silent members.

        Checked per set of neighbours: a count over the whole ensemble could miss a confirmed entry whose
        members all happen to be silent.
        """
        layout = self._layout
        return all(
            sum(index not in self._known for index in layout.write_set(first)) < layout.ack_quorum
            for first in range(layout.ensemble_size)
        )

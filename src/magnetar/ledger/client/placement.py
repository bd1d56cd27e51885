"""Chooses the bookies of an ensemble, spread over racks. Sync; randomness is handed in.

Neighbours in an ensemble share entries, so neighbours must be in different racks: any Qw of them in a row
span `racks_min` racks if the cluster has that many.

Source: BookKeeper's rack-aware placement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, TypeAlias

from magnetar.base.errors import LedgerError
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.metadata.bookkeeper.racks import UNKNOWN_RACK

_TRIES: Final = 20
"""Each place is filled with regard to its neighbours; when the last one does not fit, all are drawn again, at
most this often."""

Shuffled: TypeAlias = Callable[[Sequence[str]], list[str]]
"""The same names in random order."""


class NotEnoughBookiesError(LedgerError):
    """An ensemble needs more bookies than can be had."""

    def __init__(self, needed: int, usable: int) -> None:
        super().__init__(f"{needed} bookies are needed, {usable} can be had")
        self.needed = needed
        self.usable = usable


class RackPlacement:
    """Chooses bookies."""

    def __init__(
        self,
        racks: Callable[[str], str] = lambda _: UNKNOWN_RACK,
        *,
        racks_min: int = 2,
        enforced: bool = False,
        shuffled: Shuffled,
    ) -> None:
        """`racks`: the rack of a bookie; `racks_min`: racks that each write quorum should span.

        `enforced`: an ensemble whose write quorums span fewer is refused, bookies without a known rack are
        not chosen; a write quorum smaller than `racks_min` spans as many racks as it has members.
        """
        self._racks = racks
        self._racks_min = racks_min
        self._enforced = enforced
        self._shuffled = shuffled

    def new_ensemble(
        self, layout: QuorumLayout, writable: Set[str], avoid: Set[str] = frozenset()
    ) -> tuple[str, ...]:
        """Bookies of a new ledger; those to `avoid` only when there are no others.

        Raises NotEnoughBookiesError.
        """
        size = layout.ensemble_size
        usable = self._usable(writable)
        if len(usable) < size:
            raise NotEnoughBookiesError(size, len(usable))
        for _ in range(_TRIES if self._enforced else 1):
            ensemble: dict[int, str] = {}
            for index in range(size):
                ensemble[index] = self._pick(layout, index, ensemble, usable, avoid)
            chosen = tuple(ensemble[index] for index in range(size))
            if not self._enforced or self.spans_racks(layout, chosen):
                return chosen
        raise NotEnoughBookiesError(size, min(len(usable), size - 1))

    def spans_racks(self, layout: QuorumLayout, ensemble: Sequence[str]) -> bool:
        """Whether the bookies of each entry are in as many racks as they should be."""
        wanted = min(self._racks_min, layout.write_quorum)
        return all(
            len({self._racks(ensemble[index]) for index in layout.write_set(first)}) >= wanted
            for first in range(layout.ensemble_size)
        )

    def _usable(self, writable: Set[str]) -> Set[str]:
        if not self._enforced:
            return writable
        return {bookie for bookie in writable if self._racks(bookie) != UNKNOWN_RACK}

    def replacements(
        self,
        layout: QuorumLayout,
        ensemble: Sequence[str],
        failed: Mapping[int, str],
        writable: Set[str],
        exclude: Set[str],
        avoid: Set[str] = frozenset(),
    ) -> dict[int, str]:
        """The bookies that replace the failed ones; places without a successor are left out."""
        members = {index: bookie for index, bookie in enumerate(ensemble) if index not in failed}
        usable = set(self._usable(writable)) - exclude - set(members.values())
        chosen: dict[int, str] = {}
        for index in failed:
            if not usable:
                break
            successor = self._pick(layout, index, members, usable, avoid)
            if self._enforced and not self._keeps_racks(layout, index, successor, ensemble, members):
                continue
            chosen[index] = members[index] = successor
            usable.discard(successor)
        return chosen

    def _keeps_racks(
        self,
        layout: QuorumLayout,
        index: int,
        successor: str,
        ensemble: Sequence[str],
        members: Mapping[int, str],
    ) -> bool:
        """Whether no entry has its copies in fewer racks than before, or than it should."""
        before = [members.get(at, bookie) for at, bookie in enumerate(ensemble)]
        after = [successor if at == index else bookie for at, bookie in enumerate(before)]
        wanted = min(self._racks_min, layout.write_quorum)
        for first in range(layout.ensemble_size):
            row = layout.write_set(first)
            racks = len({self._racks(after[at]) for at in row})
            if racks < wanted and racks < len({self._racks(before[at]) for at in row}):
                return False
        return True

    def _pick(
        self,
        layout: QuorumLayout,
        index: int,
        members: Mapping[int, str],
        usable: Set[str],
        avoid: Set[str],
    ) -> str:
        """The best bookie for one place; `usable` holds one that is not a member."""
        size, reach = layout.ensemble_size, min(layout.write_quorum, max(self._racks_min, 1)) - 1
        near = {
            self._racks(members[at])
            for step in range(-reach, reach + 1)
            if (at := (index + step) % size) != index and at in members
        }
        taken = set(members.values())
        candidates = self._shuffled([bookie for bookie in sorted(usable) if bookie not in taken])
        return min(candidates, key=lambda bookie: (bookie in avoid, self._racks(bookie) in near))

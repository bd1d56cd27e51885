"""Which bookies an ensemble is made of: spread over racks. Sync; chance is handed in.

Neighbours in an ensemble share entries, so it is neighbours that stand in different racks: any Qw of them
in a row span `racks_min` racks where the cluster has so many.

Source: BookKeeper's rack-aware placement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, TypeAlias

from magnetar.base.errors import LedgerError
from magnetar.ledger.quorum.layout import QuorumLayout

DEFAULT_RACK: Final = "/default-rack"

Shuffled: TypeAlias = Callable[[Sequence[str]], list[str]]
"""The same names in an order by chance."""


class NotEnoughBookiesError(LedgerError):
    """An ensemble needs more bookies than can be had."""

    def __init__(self, needed: int, usable: int) -> None:
        super().__init__(f"{needed} bookies are needed, {usable} can be had")
        self.needed = needed
        self.usable = usable


class RackPlacement:
    """Chooses bookies."""

    def __init__(
        self, racks: Callable[[str], str] = lambda _: DEFAULT_RACK, *, racks_min: int = 2, shuffled: Shuffled
    ) -> None:
        """`racks`: the rack of a bookie; `racks_min`: how many each write quorum should span."""
        self._racks = racks
        self._racks_min = racks_min
        self._shuffled = shuffled

    def new_ensemble(
        self, layout: QuorumLayout, writable: Set[str], avoid: Set[str] = frozenset()
    ) -> tuple[str, ...]:
        """Bookies of a new ledger; those to `avoid` only when it cannot be done without.

        Raises NotEnoughBookiesError.
        """
        size = layout.ensemble_size
        if len(writable) < size:
            raise NotEnoughBookiesError(size, len(writable))
        ensemble: dict[int, str] = {}
        for index in range(size):
            ensemble[index] = self._pick(layout, index, ensemble, writable, avoid)
        return tuple(ensemble[index] for index in range(size))

    def replacements(
        self,
        layout: QuorumLayout,
        ensemble: Sequence[str],
        failed: Mapping[int, str],
        writable: Set[str],
        exclude: Set[str],
        avoid: Set[str] = frozenset(),
    ) -> dict[int, str]:
        """Who takes the places of the failed; places without a successor are left out."""
        members = {index: bookie for index, bookie in enumerate(ensemble) if index not in failed}
        usable = set(writable) - exclude - set(members.values())
        chosen: dict[int, str] = {}
        for index in failed:
            if not usable:
                break
            chosen[index] = members[index] = self._pick(layout, index, members, usable, avoid)
            usable.discard(chosen[index])
        return chosen

    def _pick(
        self,
        layout: QuorumLayout,
        index: int,
        members: Mapping[int, str],
        usable: Set[str],
        avoid: Set[str],
    ) -> str:
        """The best bookie for one place; `usable` has one that is no member."""
        size, reach = layout.ensemble_size, min(layout.write_quorum, max(self._racks_min, 1)) - 1
        near = {
            self._racks(members[at])
            for step in range(-reach, reach + 1)
            if (at := (index + step) % size) != index and at in members
        }
        taken = set(members.values())
        candidates = self._shuffled([bookie for bookie in sorted(usable) if bookie not in taken])
        return min(candidates, key=lambda bookie: (bookie in avoid, self._racks(bookie) in near))

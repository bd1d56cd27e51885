"""Ensembles over regions: a fixed number of copies of every entry in each region. Sync; randomness is handed
in.

An entry is on `write_quorum` neighbours of the ensemble, so every row of that many neighbours must have the
wanted number of members in each region. That holds when the regions of an ensemble repeat after a number of
places that divides both its size and the write quorum; other divisions are refused.

Within a region neighbours are in different racks, as many as there are.

Source: BookKeeper's region-aware placement; the division by numbers is ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import gcd
from typing import Final

from magnetar.ledger.client.placement import NotEnoughBookiesError, Shuffled
from magnetar.ledger.quorum.layout import QuorumLayout

DEFAULT_REGION: Final = "default-region"


def region_of(location: str) -> str:
    """The region in a location, `/region/rack`; a location of one word is a rack of no region."""
    parts = location.strip("/").split("/")
    return parts[0] if len(parts) > 1 else DEFAULT_REGION


@dataclass(frozen=True, slots=True)
class RegionRules:
    """The division of the copies of an entry."""

    copies: Mapping[str, int]
    """Copies of each entry by region; together the write quorum."""
    enforced: bool = True
    """Whether a ledger without its copies in every region is refused; otherwise it takes the bookies that
    there are."""

    def pattern(self, layout: QuorumLayout) -> tuple[str, ...]:
        """The regions of the first places of an ensemble; the other places repeat them.

        Raises ValueError when the division is not whole.
        """
        period = gcd(layout.ensemble_size, layout.write_quorum)
        times = layout.write_quorum // period
        if sum(self.copies.values()) != layout.write_quorum or min(self.copies.values()) < 1:
            raise ValueError(f"{layout.write_quorum} copies of an entry are not {dict(self.copies)}")
        if any(count % times for count in self.copies.values()):
            raise ValueError(
                f"{layout.ensemble_size} bookies cannot take {layout.write_quorum} copies each as"
                f" {dict(self.copies)}; an ensemble of {layout.write_quorum}, or a multiple, can"
            )
        # In turns, the region with the most copies left first: neighbours are in different regions.
        left = Counter({region: count // times for region, count in sorted(self.copies.items())})
        taken: list[str] = []
        while len(taken) < period:
            region = max(
                (each for each in left if left[each]), key=lambda each: (each not in taken[-1:], left[each])
            )
            left[region] -= 1
            taken.append(region)
        return tuple(taken)


class RegionPlacement:
    """Chooses bookies."""

    def __init__(self, locations: Callable[[str], str], rules: RegionRules, *, shuffled: Shuffled) -> None:
        """`locations`: the location of a bookie, as `/region/rack`."""
        self._locations = locations
        self._rules = rules
        self._shuffled = shuffled

    def new_ensemble(
        self, layout: QuorumLayout, writable: Set[str], avoid: Set[str] = frozenset()
    ) -> tuple[str, ...]:
        """Bookies of a new ledger; those to `avoid` only when there are no others.

        Raises NotEnoughBookiesError, ValueError for a layout whose copies cannot be divided.
        """
        pattern = self._rules.pattern(layout)
        size = layout.ensemble_size
        if len(writable) < size:
            raise NotEnoughBookiesError(size, len(writable))
        members: dict[int, str] = {}
        for index in range(size):
            region = pattern[index % len(pattern)]
            chosen = self._pick(layout, index, region, members, writable, avoid)
            if chosen is None:
                usable = sum(self._region(bookie) in self._rules.copies for bookie in writable)
                raise NotEnoughBookiesError(size, min(usable, size - 1))
            members[index] = chosen
        return tuple(members[index] for index in range(size))

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
        usable = set(writable) - exclude - set(members.values())
        chosen: dict[int, str] = {}
        is_right = self._is_right(layout, ensemble)
        for index in failed:
            # A successor in the same region leaves the division unchanged.
            region = self._region(ensemble[index]) if is_right else self._missing(layout, index, members)
            successor = self._pick(layout, index, region, members, usable, avoid)
            if successor is not None:
                chosen[index] = members[index] = successor
                usable.discard(successor)
        return chosen

    def _region(self, bookie: str) -> str:
        return region_of(self._locations(bookie))

    def _is_right(self, layout: QuorumLayout, ensemble: Sequence[str]) -> bool:
        """Whether every entry has its copies where they should be."""
        size, wanted = layout.ensemble_size, Counter(self._rules.copies)
        regions = [self._region(bookie) for bookie in ensemble]
        rows = (
            Counter(regions[at % size] for at in range(first, first + layout.write_quorum))
            for first in range(size)
        )
        return all(row == wanted for row in rows)

    def _missing(self, layout: QuorumLayout, index: int, members: Mapping[int, str]) -> str:
        """The region that the rows of neighbours around a place lack most."""
        size, quorum = layout.ensemble_size, layout.write_quorum
        lack: Counter[str] = Counter()
        for first in range(index - quorum + 1, index + 1):
            row = [members[at % size] for at in range(first, first + quorum) if at % size in members]
            there = Counter(map(self._region, row))
            for region, count in self._rules.copies.items():
                lack[region] += max(0, count - there[region])
        pattern = self._rules.pattern(layout)
        wanted = pattern[index % len(pattern)]
        return max(sorted(lack), key=lambda region: (lack[region], region == wanted))

    def _pick(
        self,
        layout: QuorumLayout,
        index: int,
        region: str,
        members: Mapping[int, str],
        usable: Set[str],
        avoid: Set[str],
    ) -> str | None:
        """The best bookie for one place; None when there is none."""
        size, reach = layout.ensemble_size, layout.write_quorum - 1
        near = {(index + step) % size for step in range(-reach, reach + 1)} - {index}
        crowd = Counter(self._locations(members[at]) for at in near if at in members)
        taken = set(members.values())
        candidates = [
            bookie
            for bookie in self._shuffled([each for each in sorted(usable) if each not in taken])
            if not self._rules.enforced or self._region(bookie) == region
        ]
        return min(
            candidates,
            key=lambda bookie: (
                bookie in avoid,
                self._region(bookie) != region,
                crowd[self._locations(bookie)],
            ),
            default=None,
        )

"""Whether the members of an ensemble are in enough racks, and which must move when they are not. Pure.

The copies of an entry are on `write_quorum` neighbours of the ensemble. An ensemble adheres when every row of
that many neighbours spans `racks_min` racks, or as many as it has members if these are fewer.

Source: BookKeeper's rack-aware placement (ensembles that adhere to the policy).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from magnetar.ledger.quorum.layout import QuorumLayout

Racks: TypeAlias = Callable[[str], str]
"""The rack of a bookie."""


def racks_short(members: Sequence[str], layout: QuorumLayout, racks: Racks, racks_min: int) -> int:
    """How many racks the rows of neighbours lack, summed over all rows; 0: the ensemble adheres."""
    wanted = min(racks_min, layout.write_quorum)
    return sum(
        max(0, wanted - len({racks(members[index]) for index in layout.write_set(first)}))
        for first in range(layout.ensemble_size)
    )


def moves(
    members: Sequence[str], layout: QuorumLayout, racks: Racks, racks_min: int, usable: Iterable[str]
) -> dict[int, str]:
    """Successors by index: the fewest with which the ensemble adheres, or comes nearest to it.

    `usable`: bookies that may take copies, the preferred ones first; members among them are not chosen. Empty
    when no bookie improves it.
    """
    now = list(members)
    chosen: dict[int, str] = {}
    left = [bookie for bookie in usable if bookie not in members]
    while True:  # Terminates: each step leaves fewer racks lacking.
        short = racks_short(now, layout, racks, racks_min)
        # Bookies of one rack are equally good.
        by_rack: dict[str, str] = {}
        for bookie in left:
            by_rack.setdefault(racks(bookie), bookie)
        best: tuple[int, int, str] | None = None
        for index in range(len(now)):
            for bookie in by_rack.values():
                changed = [*now[:index], bookie, *now[index + 1 :]]
                would = racks_short(changed, layout, racks, racks_min)
                if would < (short if best is None else best[0]):
                    best = (would, index, bookie)
        if best is None:
            return chosen
        _, index, bookie = best
        if index in chosen:
            left.append(chosen[index])
        now[index] = chosen[index] = bookie
        left.remove(bookie)

"""Whether the members of an ensemble stand in enough racks, and who is to move when they do not. Pure.

The copies of an entry lie on `write_quorum` neighbours of the ensemble. They adhere when every row of so many
neighbours spans `racks_min` racks, or as many as it has members where these are fewer.

Source: BookKeeper's rack-aware placement (ensembles that adhere to the policy).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from magnetar.ledger.quorum.layout import QuorumLayout

Racks: TypeAlias = Callable[[str], str]
"""The rack of a bookie."""


def racks_short(members: Sequence[str], layout: QuorumLayout, racks: Racks, racks_min: int) -> int:
    """How many racks the rows of neighbours lack, all rows together; 0: the ensemble adheres."""
    wanted = min(racks_min, layout.write_quorum)
    return sum(
        max(0, wanted - len({racks(members[index]) for index in layout.write_set(first)}))
        for first in range(layout.ensemble_size)
    )


def moves(
    members: Sequence[str], layout: QuorumLayout, racks: Racks, racks_min: int, usable: Iterable[str]
) -> dict[int, str]:
    """Successors by index, as few as make the ensemble adhere, or come nearest to it.

    `usable`: bookies that may take copies, the preferred ones first; members among them are not chosen.
    Nothing when nobody can improve it.
    """
    now = list(members)
    chosen: dict[int, str] = {}
    left = [bookie for bookie in usable if bookie not in members]
    while True:  # It ends: every step leaves fewer racks lacking.
        short = racks_short(now, layout, racks, racks_min)
        # Who stands in one rack is as good as the next one there.
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

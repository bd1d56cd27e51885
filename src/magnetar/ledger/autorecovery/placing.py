"""Ledgers whose copies stand in too few racks: which they are, and where their copies should go."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from magnetar.ledger.autorecovery.fragments import Fragment, fragments_of
from magnetar.ledger.autorecovery.placement_repair import moves, racks_short
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.registry import StoredLedger
from magnetar.metadata.bookkeeper.racks import BookieRacks
from magnetar.metadata.bookkeeper.registry import BookieRegistry


class PlacementCheck:
    """Looks at closed fragments that have entries; writers see to the others."""

    def __init__(self, cluster: Cluster, bookies: BookieRegistry, racks: BookieRacks, racks_min: int) -> None:
        """`racks_min`: how many racks the copies of an entry are to stand in, where it has so many."""
        self._cluster = cluster
        self._bookies = bookies
        self._racks_min = racks_min
        self.racks: Final = racks

    def broken(self, stored: StoredLedger) -> list[Fragment]:
        """Fragments whose copies stand in too few racks, by the racks as they were last loaded; none while
        nothing is known of racks."""
        if not self.racks.any_known:
            return []
        return [
            fragment
            for fragment in fragments_of(stored.metadata)
            if fragment.last is not None
            and fragment.last >= fragment.first
            and racks_short(fragment.members, fragment.layout, self.racks.of, self._racks_min)
        ]

    async def plan(self, stored: StoredLedger) -> list[tuple[Fragment, dict[int, str]]]:
        """Who is to take which places (indexes) of which fragments; only where somebody can improve them.

        Raises MetadataError.
        """
        broken = self.broken(stored)
        if not broken:
            return []
        pool = self._cluster.pool
        quarantined = pool.health.quarantined(pool.now_s)

        def preference(bookie: str) -> tuple[bool, int]:
            # By the ledger too: the ledgers of a check must not all go to the same bookie.
            return bookie in quarantined, crc32(b"%d %b" % (stored.ledger_id, bookie.encode()))

        usable = sorted((await self._bookies.bookies()).writable, key=preference)
        planned = [
            (each, moves(each.members, each.layout, self.racks.of, self._racks_min, usable))
            for each in broken
        ]
        return [(fragment, successors) for fragment, successors in planned if successors]

"""Ledgers whose copies are in too few racks: finds them, and plans where their copies should go."""

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
    """Checks closed fragments with entries; open ones are their writers' business."""

    def __init__(self, cluster: Cluster, bookies: BookieRegistry, racks: BookieRacks, racks_min: int) -> None:
        """`racks_min`: racks over which the copies of an entry should be spread, where it has that many."""
        self._cluster = cluster
        self._bookies = bookies
        self._racks_min = racks_min
        self.racks: Final = racks

    def broken(self, stored: StoredLedger) -> list[Fragment]:
        """Fragments whose copies are in too few racks, by the racks that were last loaded; none while no
        racks are known."""
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
        """The new bookies by place (index) of each fragment; only places that a bookie can improve.

        Raises MetadataError.
        """
        broken = self.broken(stored)
        if not broken:
            return []
        pool = self._cluster.pool
        quarantined = pool.health.quarantined(pool.now_s)

        def preference(bookie: str) -> tuple[bool, int]:
            # The ledger id counts too: the ledgers of a check must not all go to the same bookie.
            return bookie in quarantined, crc32(b"%d %b" % (stored.ledger_id, bookie.encode()))

        usable = sorted((await self._bookies.bookies()).writable, key=preference)
        planned = [
            (each, moves(each.members, each.layout, self.racks.of, self._racks_min, usable))
            for each in broken
        ]
        return [(fragment, successors) for fragment, successors in planned if successors]

"""Checks whether bookies have what they are to hold of a ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Set

from magnetar.ledger.autorecovery.fragments import Fragment, Lack, fragments_of
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.registry import StoredLedger
from magnetar.wire.bookkeeper.digests import Digester, DigestMismatchError, DigestType
from magnetar.wire.bookkeeper.status import Status

READS_AT_ONCE = 32
"""Of one ledger."""


def digester_of(stored: StoredLedger) -> Digester:
    """Opens and seals entries of a ledger, by the password that its metadata has."""
    # Metadata of the first version does not say; the oldest digest is what those ledgers have.
    digest = stored.metadata.digest or DigestType.CRC32
    return Digester(stored.ledger_id, digest, stored.metadata.password)


class LedgerChecker:
    """Reads samples of what each member of each fragment holds."""

    def __init__(self, cluster: Cluster, *, share: float = 0.0) -> None:
        """`share` (0..1) of a member's entries are read; the first and the last one always."""
        self._cluster = cluster
        self._share = share
        self._room = asyncio.Semaphore(READS_AT_ONCE)

    async def lacks(self, stored: StoredLedger, available: Set[str]) -> list[Lack]:
        """Where copies are lost: the bookie is not available, lacks an entry or has a damaged one.

        A bookie that is available and does not answer lacks them as well. Of an open fragment only who is
        not available counts: what its members are to hold is not certain.
        """
        lacks = []
        for fragment in fragments_of(stored.metadata):
            indexes = range(len(fragment.members))
            good = await asyncio.gather(
                *(self._is_good(stored, fragment, index, available) for index in indexes)
            )
            places = {index: fragment.members[index] for index in indexes if not good[index]}
            if places:
                lacks.append(Lack(fragment, places))
        return lacks

    async def _is_good(
        self, stored: StoredLedger, fragment: Fragment, index: int, available: Set[str]
    ) -> bool:
        if fragment.members[index] not in available:
            return False
        digester = digester_of(stored)
        for entry_id in fragment.sample(index, self._share):
            async with self._room:
                if not await self._has(stored.ledger_id, fragment.members[index], entry_id, digester):
                    return False
        return True

    async def _has(self, ledger_id: int, bookie: str, entry_id: int, digester: Digester) -> bool:
        status, data = await read_copy(self._cluster, bookie, ledger_id, entry_id)
        if status is not Status.OK or data is None:
            return False
        try:
            digester.open(data, entry_id)
        except DigestMismatchError:
            return False
        return True


async def read_copy(
    cluster: Cluster, bookie: str, ledger_id: int, entry_id: int
) -> tuple[Status, bytes | None]:
    """The copy that one bookie has. No answer is IO_ERROR."""
    result: asyncio.Future[tuple[Status, bytes | None]] = asyncio.get_running_loop().create_future()

    def answered(status: Status, entry: bytes | None) -> None:
        if not result.done():
            result.set_result((status, entry))

    cluster.pool.read(bookie, ledger_id, entry_id, answered)
    return await result

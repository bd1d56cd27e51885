"""Checks whether bookies hold the entries of a ledger that they should hold."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Final

from magnetar.base.errors import ProtocolError
from magnetar.base.ids import LedgerId
from magnetar.ledger.autorecovery.entry_lists import MISSING_MAX, EntryLists, NoListError, missing_at
from magnetar.ledger.autorecovery.fragments import Fragment, Lack
from magnetar.ledger.autorecovery.repair_rules import REPAIR_RULES, RepairRules
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.registry import StoredLedger
from magnetar.runtime.tasks import gathered
from magnetar.wire.bookkeeper.digests import Digester, DigestMismatchError, DigestType
from magnetar.wire.bookkeeper.status import Status

READS_AT_ONCE: Final = 32
"""Concurrent reads of one ledger."""


def digester_of(stored: StoredLedger) -> Digester:
    """The digester of a ledger, with the password in its metadata."""
    # Metadata of the first version names no digest; those ledgers have the oldest one.
    digest = stored.metadata.digest or DigestType.CRC32
    return Digester(stored.ledger_id, digest, stored.metadata.password)


@dataclass(frozen=True, slots=True)
class _Look:
    """One check; the arguments are those of `LedgerChecker.lacks`."""

    stored: StoredLedger
    available: Set[str]
    doubted: Set[str]
    reads_all: bool


class LedgerChecker:
    """Checks the entries of each member of each fragment: samples, or all."""

    def __init__(
        self,
        cluster: Cluster,
        lists: EntryLists,
        *,
        share: float = 0.0,
        rules: RepairRules = REPAIR_RULES,
    ) -> None:
        """`share` (0..1) of a member's entries is read; the first and the last one always."""
        self._cluster = cluster
        self._lists = lists
        self._share = share
        self._rules = rules
        self._room = asyncio.Semaphore(READS_AT_ONCE)

    async def lacks(
        self,
        stored: StoredLedger,
        available: Set[str],
        doubted: Set[str] = frozenset(),
        *,
        reads_all: bool = True,
    ) -> list[Lack]:
        """The lost copies: the bookie is not available, lacks an entry or has a damaged one.

        A bookie that is available and does not answer counts as lacking them too. In an open fragment only an
        unavailable bookie counts: which entries its members should hold is not certain. All entries of
        `doubted` bookies are checked: by their lists, or, without a list, by reading them if `reads_all`.
        """
        look = _Look(stored, available, doubted, reads_all)
        rules = self._rules
        found = [await self._lack(look, fragment) for fragment in rules.fragments(stored.metadata)]
        return [lack for lack in found if lack is not None and rules.counts(lack)]

    async def _lack(self, look: _Look, fragment: Fragment) -> Lack | None:
        places = dict(enumerate(fragment.members))
        good = await gathered(self._is_good(look.stored, fragment, index, look.available) for index in places)
        sound = [index for index in places if good[index]]
        wholly = set(places) - set(sound)
        missing: dict[int, tuple[int, ...]] = {}
        for index in sound:
            if not fragment.is_open and places[index] in look.doubted:
                lost = await self._missing(look, fragment, index)
                if lost is None:
                    wholly.add(index)
                elif lost:
                    missing[index] = tuple(lost)
        lacking = {index: bookie for index, bookie in places.items() if index in wholly or index in missing}
        return Lack(fragment, lacking, missing) if lacking else None

    async def _is_good(
        self, stored: StoredLedger, fragment: Fragment, index: int, available: Set[str]
    ) -> bool:
        """Whether the member is available and has a sample of its entries."""
        if fragment.members[index] not in available:
            return False
        digester = digester_of(stored)
        for entry_id in fragment.sample(index, self._share):
            async with self._room:
                if not await self._has(stored.ledger_id, fragment.members[index], entry_id, digester):
                    return False
        return True

    async def _missing(self, look: _Look, fragment: Fragment, index: int) -> Sequence[int] | None:
        """The entries that the member lacks; None: too many to list."""
        if not fragment.bounds(index):
            return ()
        bookie, ledger_id = fragment.members[index], look.stored.ledger_id
        try:
            return await missing_at(fragment, index, await self._lists.held(bookie, ledger_id))
        except (NoListError, ProtocolError):
            return await self._unreadable(look.stored, fragment, index) if look.reads_all else ()

    async def _unreadable(self, stored: StoredLedger, fragment: Fragment, index: int) -> Sequence[int] | None:
        digester, lost = digester_of(stored), list[int]()
        bookie, entries = fragment.members[index], fragment.entries(index)
        while asked := list(islice(entries, READS_AT_ONCE)):
            has = await gathered(
                self._has(stored.ledger_id, bookie, entry_id, digester) for entry_id in asked
            )
            lost += [entry_id for entry_id, there in zip(asked, has, strict=True) if not there]
            if len(lost) > MISSING_MAX:
                return None
        return lost

    async def _has(self, ledger_id: LedgerId, bookie: str, entry_id: int, digester: Digester) -> bool:
        status, data = await read_copy(self._cluster, bookie, ledger_id, entry_id)
        if status is not Status.OK or data is None:
            return False
        try:
            digester.open(data, entry_id)
        except DigestMismatchError:
            return self._rules.believes_damaged()
        return True


async def read_copy(
    cluster: Cluster, bookie: str, ledger_id: LedgerId, entry_id: int
) -> tuple[Status, bytes | None]:
    """Reads the copy of one bookie. No answer counts as IO_ERROR."""
    result: asyncio.Future[tuple[Status, bytes | None]] = asyncio.get_running_loop().create_future()

    def answered(status: Status, entry: bytes | None) -> None:
        if not result.done():
            result.set_result((status, entry))

    cluster.pool.read(bookie, ledger_id, entry_id, answered)
    return await result

"""Rules of auto-recovery and of the managed log, each with a way to break it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import islice
from typing import Any, Final, cast

from magnetar.base.errors import MetadataError
from magnetar.base.ids import LedgerId
from magnetar.bookie.network.collecting import Missing
from magnetar.ledger.api import Copies, WriterListener
from magnetar.ledger.autorecovery.fragments import Fragment, Lack, fragments_of
from magnetar.ledger.autorecovery.repair_rules import RepairRules
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerHandle
from magnetar.ledger.ledger_metadata import LedgerMetadata
from magnetar.ledger.quorum.rules import ReadingRules
from magnetar.ledger.remote.remote_ledgers import RemoteLedgers, RemoteWriter
from magnetar.managedlog.appender import LedgerFeed
from magnetar.managedlog.errors import LogFencedError
from magnetar.managedlog.log_metadata import ROOT
from magnetar.managedlog.log_rules import LogRules, Record
from magnetar.metadata.store import ANY_VERSION, MUST_NOT_EXIST, Stat
from magnetar.wire.bookkeeper.digests import HEAD_BYTES, Digester, DigestMismatchError, LedgerEntry
from sim.breaking import Mutation
from sim.cluster import bookie
from sim.cluster.store import SimStore
from sim.rules import RulesInForce

# Auto-recovery


class _AnyAnswerIsACopy(RepairRules):
    def answers_needed(self, count: int) -> int:
        return 0


class _MarkGoesInAnyCase(RepairRules):
    def is_whole(self, lacks: Sequence[Lack]) -> bool:
        return True


class _MovesOpenEnds(RepairRules):
    def fragments(self, metadata: LedgerMetadata) -> list[Fragment]:
        # As if an open fragment had no entries, and could be moved like any other.
        return [
            replace(fragment, last=fragment.first - 1) if fragment.last is None else fragment
            for fragment in fragments_of(metadata)
        ]

    def moved(
        self, metadata: LedgerMetadata, first: int, places: Mapping[int, tuple[str, str]]
    ) -> LedgerMetadata | None:
        return _moved_open_or_not(metadata, first, places)


def _moved_open_or_not(metadata: LedgerMetadata, first: int, places: Any) -> LedgerMetadata | None:
    changed = []
    for start, members in metadata.ensembles:
        new = list(members)
        for index, (_, bookie_id) in places.items() if start == first else ():
            new[index] = bookie_id
        changed.append((start, tuple(new)))
    return metadata.with_ensembles(tuple(changed))


class _LooksAtTheLastEnsemble(RepairRules):
    def holders(self, metadata: LedgerMetadata, lost: Set[str]) -> frozenset[str]:
        return frozenset(metadata.ensembles[-1][1]) & lost


class _OrdinaryAdds(RepairRules):
    def passes_fences(self) -> bool:
        return False


class _Credulous:
    """A digester that takes whatever it is given."""

    def __init__(self, digester: Any) -> None:
        self._digester = digester

    def open(self, entry: bytes, entry_id: int | None) -> LedgerEntry:
        """As it is, whatever its digest says."""
        try:
            opened: LedgerEntry = self._digester.open(entry, entry_id)
        except DigestMismatchError:
            payload_at = HEAD_BYTES + self._digester.digest_bytes
            return LedgerEntry(LedgerId(0), entry_id or 0, -1, 0, entry[payload_at:])
        return opened


class _ReadsWhateverComes(ReadingRules):
    def opener(self, digester: Digester) -> Digester:
        believed: Any = _Credulous(digester)
        return cast("Digester", believed)


class _DamagedCounts(RepairRules):
    def believes_damaged(self) -> bool:
        return True


class _OpenEndsAreWhole(RepairRules):
    def counts(self, lack: Lack) -> bool:
        return not lack.fragment.is_open


class _CopiesOfSome(RepairRules):
    def entries_to_copy(
        self, fragment: Fragment, index: int, missing: Mapping[int, Sequence[int]]
    ) -> Iterable[int]:
        return islice(super().entries_to_copy(fragment, index, missing), 1)


class _NeverAgain(RepairRules):
    """An audit that failed is forgotten."""

    audit_retry_s = math.inf


class _NoSecondLook(RepairRules):
    """Looks after a lost bookie only once."""

    look_again_s = math.inf


# Metadata


def _whatever_is_there(path_of: str, *, also_new: bool) -> Callable[..., Awaitable[Stat]]:
    """A store that compares no versions of the values below a path. `also_new`: nor looks whether one is
    there that is to be new."""

    async def put(self: SimStore, path: str, data: bytes, **how: Any) -> Stat:
        expected = how.get("expected_version", ANY_VERSION)
        if path.startswith(path_of) and (also_new or expected != MUST_NOT_EXIST):
            how["expected_version"] = ANY_VERSION
        return await _PUT(self, path, data, **how)

    return put


_PUT: Final = SimStore.put


async def _missing_at_once(known: set[LedgerId], existing: Any) -> Missing:
    listed: set[LedgerId] = set()

    async def listing() -> AsyncIterator[LedgerId]:
        with contextlib.suppress(MetadataError):
            async for ledger_id in existing.ledger_ids():
                yield ledger_id

    async for ledger_id in listing():
        listed.add(ledger_id)
    return Missing(sorted(known - listed), max(1, len(listed)))


def _without_looking(existing: Any, connection_id: int, delete: Callable[[int], Awaitable[None]]) -> Any:
    async def delete_at_once(ledger_id: LedgerId) -> bool:
        await delete(ledger_id)
        return True

    return delete_at_once


# The managed log


async def _a_bit_later(storing: Coroutine[object, object, None], pause_s: float) -> None:
    try:
        if pause_s:
            await asyncio.sleep(pause_s)
        with contextlib.suppress(MetadataError, LogFencedError):
            await storing
    finally:
        storing.close()


class _UsedBeforeListed(LogRules):
    def __init__(self, *, first: bool) -> None:
        self._first = first

    def listed(self, storing: Coroutine[object, object, None], *, is_first: bool) -> Awaitable[None]:
        if is_first is not self._first:
            return storing
        work = _a_bit_later(storing, 0.0 if is_first else 0.05)
        # What runs is held by nothing else.
        _LATER.add(task := asyncio.get_running_loop().create_task(work))
        task.add_done_callback(_LATER.discard)
        return asyncio.sleep(0)


_LATER: Final = set[asyncio.Task[None]]()


class _HoldsNothing(LogRules):
    def holds_while_draining(self) -> bool:
        return False


class _TellsTooMuch:
    """Tells a listener that whatever it appended is durable, at the first word of it."""

    def __init__(self, listener: WriterListener) -> None:
        self._listener = listener
        self.failed = listener.failed

    def durable(self, last_entry: int) -> None:
        assert isinstance(self._listener, LedgerFeed)
        self._listener.durable(max(last_entry, self._listener.next_entry - 1))


class _DurableTooEarly(RemoteLedgers):
    async def create(
        self, listener: WriterListener, custom_metadata: Mapping[str, bytes], copies: Copies | None = None
    ) -> RemoteWriter:
        return await super().create(_TellsTooMuch(listener), custom_metadata, copies)


class _OpensAsItIs(LedgerClient):
    async def open(self, ledger_id: LedgerId, password: bytes = b"", *, recover: bool = True) -> LedgerHandle:
        return await super().open(ledger_id, password, recover=False)


class _LastEndOnly(LogRules):
    def ends_to_find(self, records: Sequence[Record]) -> Sequence[Record]:
        return tuple(record for at, record in enumerate(records) if record.sealed or at == len(records) - 1)


class _IndexOfTheList(LogRules):
    def index_behind(self, base_index: int, next_index: int) -> int:
        return base_index + 1


class _DeletesWhenInDoubt(LogRules):
    def surely_unlisted(self, doubtful: Sequence[LedgerId], *, is_stored: bool) -> Sequence[LedgerId]:
        return doubtful


CLUSTER_MUTATIONS: Final = {
    "copies-are-answered": Mutation(
        "a copy is one when its bookie says that it is durable",
        [(RulesInForce, "repair", _AnyAnswerIsACopy())],
        found_by=1,
        scenario="cluster",
    ),
    "mark-goes-last": Mutation(
        "a ledger is marked until its copies are there",
        [(RulesInForce, "repair", _MarkGoesInAnyCase())],
        found_by=10,
        scenario="cluster",
    ),
    "open-fragments-stay": Mutation(
        "the bookies of a ledger's open end change by its writer only, or after a fence",
        [(RulesInForce, "repair", _MovesOpenEnds())],
        found_by=201,
        scenario="cluster",
    ),
    "open-fragments-count": Mutation(
        "a ledger whose open end has a lost bookie lacks copies",
        [(RulesInForce, "repair", _OpenEndsAreWhole())],
        found_by=10,
        scenario="cluster",
    ),
    "every-ensemble": Mutation(
        "an audit looks at all ensembles of a ledger",
        [(RulesInForce, "repair", _LooksAtTheLastEnsemble())],
        found_by=10,
        scenario="cluster",
    ),
    "copies-pass-fences": Mutation(
        "copies are added to fenced ledgers as well",
        [(RulesInForce, "repair", _OrdinaryAdds())],
        found_by=39,
        scenario="cluster",
    ),
    "digests-of-reads": Mutation(
        "what is read has the digest that was written",
        [(RulesInForce, "reading", _ReadsWhateverComes())],
        found_by=52,
        scenario="cluster",
    ),
    "digests-of-checks": Mutation(
        "a copy with another digest is none",
        [(RulesInForce, "repair", _DamagedCounts())],
        found_by=52,
        scenario="cluster",
    ),
    "all-or-nothing": Mutation(
        "a bookie takes a place when it has all copies of it",
        [(RulesInForce, "repair", _CopiesOfSome())],
        found_by=57,
        scenario="cluster",
    ),
    "audits-come-to-an-end": Mutation(
        "an audit that failed is made again",
        [(RulesInForce, "repair", _NeverAgain())],
        found_by=70,
        scenario="cluster",
    ),
    "audits-look-again": Mutation(
        "a lost bookie is audited twice: a client may not have learned of the loss at the first audit",
        [(RulesInForce, "repair", _NoSecondLook())],
        found_by=13008,
        scenario="cluster",
    ),
    "compare-and-set": Mutation(
        "a ledger's metadata is written over what was read",
        [(SimStore, "put", _whatever_is_there("/ledgers/", also_new=False))],
        found_by=47,
        scenario="cluster",
    ),
    "collecting-fails-safe": Mutation(
        "entries go when their ledger certainly does not exist",
        [(bookie, "missing_ledgers", _missing_at_once), (bookie, "looking_again", _without_looking)],
        found_by=12,
        scenario="cluster",
    ),
    "listed-before-used": Mutation(
        "a ledger is in the list before the log goes on in it",
        [(RulesInForce, "log", _UsedBeforeListed(first=False))],
        found_by=27,
        scenario="cluster",
    ),
    "first-listed-before-used": Mutation(
        "an owner's first ledger is in the list before the log goes on in it",
        [(RulesInForce, "log", _UsedBeforeListed(first=True))],
        found_by=2,
        scenario="cluster",
    ),
    "held-until-drained": Mutation(
        "the next ledger takes entries when the one before is durable to its end",
        [(RulesInForce, "log", _HoldsNothing())],
        found_by=256,
        scenario="cluster",
    ),
    "acknowledged-when-durable": Mutation(
        "an entry is acknowledged when its ledger says that it is durable",
        [(RulesInForce, "ledgers", _DurableTooEarly)],
        found_by=150,
        scenario="cluster",
    ),
    "owners-fence": Mutation(
        "an owner closes the ledgers of the one before",
        [(RulesInForce, "ledger_client", _OpensAsItIs)],
        found_by=2,
        scenario="cluster",
    ),
    "one-owner-lists": Mutation(
        "the list is changed only by the broker that read its newest version",
        [(SimStore, "put", _whatever_is_there(f"{ROOT}/", also_new=True))],
        found_by=10,
        scenario="cluster",
    ),
    "every-end": Mutation(
        "an owner finds the end of every ledger that was not sealed",
        [(RulesInForce, "log", _LastEndOnly())],
        found_by=2,
        scenario="cluster",
    ),
    "index-goes-on": Mutation(
        "the index goes on behind the last message",
        [(RulesInForce, "log", _IndexOfTheList())],
        found_by=0,
        scenario="cluster",
    ),
    "deleted-when-unlisted": Mutation(
        "a ledger that may be in the list is not deleted",
        [(RulesInForce, "log", _DeletesWhenInDoubt())],
        found_by=97,
        scenario="cluster",
    ),
}
"""By name."""

"""Rules of auto-recovery and of the managed log, each with a way to break it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from magnetar.base.errors import CorruptDataError, LedgerError, MetadataError
from magnetar.base.ids import LedgerId
from magnetar.bookie.network.collecting import Missing
from magnetar.ledger.api import LedgerReader
from magnetar.ledger.autorecovery import auditor, checker, fragments, replicating
from magnetar.ledger.autorecovery.checker import LedgerChecker
from magnetar.ledger.autorecovery.fragments import Fragment, Lack
from magnetar.ledger.autorecovery.replicating import Replicator
from magnetar.ledger.autorecovery.replication_worker import ReplicationWorker
from magnetar.ledger.autorecovery.schedule import AuditSchedule
from magnetar.ledger.ledger_metadata import LedgerMetadata
from magnetar.ledger.quorum import entry_read
from magnetar.ledger.registry import StoredLedger
from magnetar.ledger.remote.remote_ledgers import RemoteLedgers
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.managedlog import recovery
from magnetar.managedlog.appender import Appender, LedgerFeed
from magnetar.managedlog.holes import LedgerBounds, bounds_of
from magnetar.managedlog.lifecycle import LedgerLifecycle
from magnetar.managedlog.log_metadata import LedgerRecord, LogMetadata
from magnetar.managedlog.stored_log import StoredLog
from magnetar.metadata.store import ANY_VERSION, BadVersionError
from magnetar.wire.bookkeeper.digests import HEAD_BYTES, DigestMismatchError, LedgerEntry
from magnetar.wire.bookkeeper.requests import AddRun
from magnetar.wire.bookkeeper.status import Status
from sim.breaking import Mutation
from sim.cluster import bookie

# Auto-recovery


class _Answered:
    """An answer for which no caller waits."""

    def __init__(self, _: int) -> None:
        self.all = self

    def __await__(self) -> Any:
        yield from ()
        return Status.OK

    def added(self, entry_ids: Sequence[int], status: Status) -> None:
        """Ignores the answer."""


async def _mark_goes_first(self: ReplicationWorker, ledger_id: LedgerId) -> bool:
    found = await self._marks.get(ledger_id)
    if found is not None:
        await self._marks.replicated(ledger_id, found[1])
        for lack in await self._lacks(ledger_id):
            if not lack.fragment.is_open:
                stored = await self._client.cluster.ledgers.read(ledger_id)
                await self._replicator.repair(stored, lack, await self._available())
    return True


def _fragments_without_an_open_one(metadata: LedgerMetadata) -> list[Fragment]:
    # As if an open fragment had no entries, and could be moved like any other.
    return [
        replace(fragment, last=fragment.first - 1) if fragment.last is None else fragment
        for fragment in _FRAGMENTS_OF(metadata)
    ]


_FRAGMENTS_OF: Final = fragments.fragments_of


def _moved_open_or_not(metadata: LedgerMetadata, first: int, places: Any) -> LedgerMetadata | None:
    changed = []
    for start, members in metadata.ensembles:
        new = list(members)
        for index, (_, bookie_id) in places.items() if start == first else ():
            new[index] = bookie_id
        changed.append((start, tuple(new)))
    return metadata.with_ensembles(tuple(changed))


def _held_by_the_last(metadata: LedgerMetadata, bookies: frozenset[str]) -> frozenset[str]:
    return frozenset(metadata.ensembles[-1][1]) & bookies


def _ordinary_adds(*arguments: Any, **options: Any) -> AddRun:
    options.pop("recovery", None)
    return AddRun(*arguments, **options)


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


def _reads_whatever_comes(self: Any, entry_id: int, members: Any, order: Any, digester: Any) -> None:
    believed: Any = _Credulous(digester)
    _ENTRY_READ_INIT(self, entry_id, members, order, believed)


_ENTRY_READ_INIT: Final = entry_read.EntryRead.__init__


def _has_anything(
    digester_of: Callable[[StoredLedger], Any],
) -> Callable[[StoredLedger], Any]:
    return lambda stored: _Credulous(digester_of(stored))


async def _lacks_of_closed(self: LedgerChecker, *what: Any, **named: Any) -> list[Lack]:
    return [lack for lack in await _LACKS(self, *what, **named) if not lack.fragment.is_open]


_LACKS: Final = LedgerChecker.lacks


async def _copies_of_some(self: Replicator, *what: Any) -> None:
    with contextlib.suppress(LedgerError, CorruptDataError):
        await _COPY(self, *what)


_COPY: Final = Replicator._copy


def _never_again(self: AuditSchedule, again_s: float) -> None:
    """An audit that failed is forgotten."""


def _no_second_look(self: AuditSchedule, now_s: float) -> None:
    """Looks after a lost bookie only once."""


# Metadata


async def _write_any_version(
    self: TreeLedgerRegistry, ledger_id: LedgerId, metadata: LedgerMetadata, expected_version: int
) -> StoredLedger:
    while True:
        with contextlib.suppress(BadVersionError):
            return await _WRITE(self, ledger_id, metadata, (await self.read(LedgerId(ledger_id))).version)


_WRITE: Final = TreeLedgerRegistry.write


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


async def _used_before_listed(self: LedgerLifecycle) -> None:
    try:
        async with self._lock:
            feed = await self._create()
            if not self._stopped and self._appender.error is None:
                self._go_on_in(feed)
            record = LedgerRecord(feed.ledger.ledger_id)
            await asyncio.sleep(0.05)
            with contextlib.suppress(MetadataError):
                await self._stored.update(lambda metadata: metadata.adding(record))
    except (LedgerError, MetadataError):
        pass
    finally:
        self.rollover.over()


async def _begun_before_listed(
    self: LedgerLifecycle, recovered: Callable[[LogMetadata], LogMetadata]
) -> None:
    async with self._lock:
        feed = await self._create()
        record = LedgerRecord(feed.ledger.ledger_id, base_index=self._appender.next_index)
        self._go_on_in(feed)
        self._spawn(self._stored.update(lambda metadata: recovered(metadata).adding(record)))


def _append_without_waiting(self: Appender, entries: list[bytes], counts: list[int] | None) -> Any:
    position = _APPEND(self, entries, counts)
    if self.draining:
        self._release_held()
    return position


_APPEND: Final = Appender.append


def _all_is_durable(self: LedgerFeed, last_entry: int) -> None:
    self._appender.durable(self, max(last_entry, self.next_entry - 1))


async def _opened_as_it_is(self: RemoteLedgers, ledger_id: LedgerId) -> Any:
    return await self._client.open(ledger_id, self._options.password, recover=False)


async def _updated_whoever_has_it(self: StoredLog, change: Callable[[LogMetadata], LogMetadata]) -> None:
    self._version = ANY_VERSION  # type: ignore[assignment]  # that is what is wrong here
    await _UPDATE(self, change)


_UPDATE: Final = StoredLog.update


async def _last_end_only(metadata: LogMetadata, ledgers: Any, name: str) -> LogMetadata:
    records = metadata.ledgers
    kept = tuple(record for at, record in enumerate(records) if record.sealed or at == len(records) - 1)
    return await _FIND_ENDS(replace(metadata, ledgers=kept), ledgers, name)


_FIND_ENDS: Final[Callable[..., Awaitable[LogMetadata]]] = recovery._find_ends


async def _index_of_the_list(reader: LedgerReader, index_before: int) -> LedgerBounds:
    known = await bounds_of(reader, index_before)
    return LedgerBounds(known.base_index, known.base_index + 1, known.time_ms)


async def _deleted_when_in_doubt(self: LedgerLifecycle) -> None:
    try:
        await _ROLL(self)
    finally:
        doubtful, self._unlisted = self._unlisted, []
        await self._delete(doubtful)


_ROLL: Final = LedgerLifecycle._roll

CLUSTER_MUTATIONS: Final = {
    "copies-are-answered": Mutation(
        "a copy is one when its bookie says that it is durable",
        [(replicating, "_Acks", _Answered)],
        found_by=1,
        scenario="cluster",
    ),
    "mark-goes-last": Mutation(
        "a ledger is marked until its copies are there",
        [(ReplicationWorker, "_repair", _mark_goes_first)],
        found_by=10,
        scenario="cluster",
    ),
    "open-fragments-stay": Mutation(
        "the bookies of a ledger's open end change by its writer only, or after a fence",
        [
            (checker, "fragments_of", _fragments_without_an_open_one),
            (replicating, "moved", _moved_open_or_not),
        ],
        found_by=201,
        scenario="cluster",
    ),
    "open-fragments-count": Mutation(
        "a ledger whose open end has a lost bookie lacks copies",
        [(LedgerChecker, "lacks", _lacks_of_closed)],
        found_by=10,
        scenario="cluster",
    ),
    "every-ensemble": Mutation(
        "an audit looks at all ensembles of a ledger",
        [(auditor, "held_by", _held_by_the_last)],
        found_by=10,
        scenario="cluster",
    ),
    "copies-pass-fences": Mutation(
        "copies are added to fenced ledgers as well",
        [(replicating, "AddRun", _ordinary_adds)],
        found_by=39,
        scenario="cluster",
    ),
    "digests-of-reads": Mutation(
        "what is read has the digest that was written",
        [(entry_read.EntryRead, "__init__", _reads_whatever_comes)],
        found_by=52,
        scenario="cluster",
    ),
    "digests-of-checks": Mutation(
        "a copy with another digest is none",
        [(checker, "digester_of", _has_anything(checker.digester_of))],
        found_by=52,
        scenario="cluster",
    ),
    "all-or-nothing": Mutation(
        "a bookie takes a place when it has all copies of it",
        [(Replicator, "_copy", _copies_of_some)],
        found_by=57,
        scenario="cluster",
    ),
    "audits-come-to-an-end": Mutation(
        "an audit that failed is made again",
        [(AuditSchedule, "failed", _never_again)],
        found_by=70,
        scenario="cluster",
    ),
    "audits-look-again": Mutation(
        "a lost bookie is audited twice: a client may not have learned of the loss at the first audit",
        [(AuditSchedule, "done", _no_second_look)],
        found_by=13008,
        scenario="cluster",
    ),
    "compare-and-set": Mutation(
        "a ledger's metadata is written over what was read",
        [(TreeLedgerRegistry, "write", _write_any_version)],
        found_by=17,
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
        [(LedgerLifecycle, "_roll", _used_before_listed)],
        found_by=27,
        scenario="cluster",
    ),
    "first-listed-before-used": Mutation(
        "an owner's first ledger is in the list before the log goes on in it",
        [(LedgerLifecycle, "begin", _begun_before_listed)],
        found_by=2,
        scenario="cluster",
    ),
    "held-until-drained": Mutation(
        "the next ledger takes entries when the one before is durable to its end",
        [(Appender, "append", _append_without_waiting)],
        found_by=256,
        scenario="cluster",
    ),
    "acknowledged-when-durable": Mutation(
        "an entry is acknowledged when its ledger says that it is durable",
        [(LedgerFeed, "durable", _all_is_durable)],
        found_by=150,
        scenario="cluster",
    ),
    "owners-fence": Mutation(
        "an owner closes the ledgers of the one before",
        [(RemoteLedgers, "_closed", _opened_as_it_is)],
        found_by=2,
        scenario="cluster",
    ),
    "one-owner-lists": Mutation(
        "the list is changed only by the broker that read its newest version",
        [(StoredLog, "update", _updated_whoever_has_it)],
        found_by=10,
        scenario="cluster",
    ),
    "every-end": Mutation(
        "an owner finds the end of every ledger that was not sealed",
        [(recovery, "_find_ends", _last_end_only)],
        found_by=2,
        scenario="cluster",
    ),
    "index-goes-on": Mutation(
        "the index goes on behind the last message",
        [(recovery, "bounds_of", _index_of_the_list)],
        found_by=0,
        scenario="cluster",
    ),
    "deleted-when-unlisted": Mutation(
        "a ledger that may be in the list is not deleted",
        [(LedgerLifecycle, "_roll", _deleted_when_in_doubt)],
        found_by=97,
        scenario="cluster",
    ),
}
"""By name."""

"""Opens a log: from the state that the last owner left to a log that can be appended to.

1. The list of ledgers is read; ledgers that were removed from it are deleted again.
2. Every ledger without a known end is opened: that fences a former owner, recovers and closes the ledger. Its
   last entry tells the next index and time.
3. The cursors are recovered.
4. A new ledger is created and stored in the list, by version, together with the ends. A concurrent opening
   fails here. Only then can the log be appended to; old ledgers are never written again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import Ledgers, may_have_lost
from magnetar.managedlog.cursors.log_cursors import CursorWork, LogCursors
from magnetar.managedlog.holes import HolePolicy, bounds_of
from magnetar.managedlog.ledger_list import Ledger, LedgerList
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.log_metadata import LedgerRecord, LogMetadata
from magnetar.managedlog.log_reading import LogReading
from magnetar.managedlog.log_rules import LogRules
from magnetar.managedlog.offloading import LogOffloading
from magnetar.managedlog.parts import LogParts
from magnetar.managedlog.resources import LogResources
from magnetar.managedlog.stored_log import StoredLog
from magnetar.managedlog.tail_cache import CacheBudget, TailCache
from magnetar.tiered.api import Tiers

_log = logging.getLogger("magnetar.managedlog")


class ReadSources(NamedTuple):
    """Where the logs of a process read what is not in their own ledgers, and what they pass over."""

    budget: CacheBudget
    """Of their tail caches together."""
    tiers: Tiers | None
    """What was offloaded; None: nothing is."""
    holes: HolePolicy


async def recover_log(
    name: str,
    *,
    resources: LogResources,
    sources: ReadSources,
    cursor_work: CursorWork,
    closed: Callable[[ManagedLog], None],
) -> ManagedLog:
    """Opens or creates a log; `closed` is called when it has ended. Raises what `ManagedLogs.open` raises."""
    ledgers, tiers, clock = resources.ledgers, sources.tiers, resources.clock
    stored = await StoredLog.load(resources.store, name)
    swept = await _sweep(stored.metadata.deleted_ledgers, ledgers, name)
    found = await _find_ends(stored.metadata, ledgers, name, resources.config.rules)
    ledger_list = LedgerList([_sealed(record) for record in found.ledgers])
    cache = TailCache(sources.budget)
    cursors = LogCursors(name, ledger_list, resources, cursor_work)
    reading = LogReading(name, ledger_list, cache, ledgers, tiers, sources.holes)
    offloading = LogOffloading(
        stored=stored, ledgers=ledger_list, reading=reading, source=ledgers, tiers=tiers, clock=clock
    )
    parts = LogParts(
        stored=stored,
        ledgers=ledger_list,
        cache=cache,
        reading=reading,
        cursors=cursors,
        offloading=offloading,
    )
    log = ManagedLog(parts=parts, resources=resources, found=found, closed=closed)
    stored.deleted(swept)
    await log.start(lambda metadata: found)
    empty = tuple(item for item in found.deleted_ledgers if item not in swept)
    stored.deleted(await _sweep(empty, ledgers, name))
    if found.deleted_copies:
        # A store may be slow, and no caller waits for this.
        resources.spawn(offloading.delete_copies())
    return log


def _sealed(record: LedgerRecord) -> Ledger:
    ledger = Ledger.sealed(
        record.ledger_id,
        record.base_index,
        entries=record.entries,
        size_bytes=record.size_bytes,
        timestamp_ms=record.timestamp_ms,
    )
    ledger.offload = record.offload
    return ledger


async def _sweep(ledger_ids: tuple[LedgerId, ...], ledgers: Ledgers, name: str) -> list[LedgerId]:
    """Deletes the leftovers of a crash; returns the deleted ids."""
    gone = []
    for ledger_id in ledger_ids:
        try:
            await ledgers.delete(ledger_id)
        except MagnetarError as error:  # it stays in the list, and the next opening tries again
            _log.warning("log %s: ledger %d could not be deleted: %s", name, ledger_id, error)
        else:
            gone.append(ledger_id)
    return gone


async def _find_ends(metadata: LogMetadata, ledgers: Ledgers, name: str, rules: LogRules) -> LogMetadata:
    """The value with the end of every ledger; empty ledgers are removed from the list.

    Damage keeps no log from being opened: a read of lost entries reports the loss.
    """
    records: list[LedgerRecord] = []
    empty: list[LedgerId] = []
    next_index = 0
    last_time = metadata.last_broker_time_ms
    for record in rules.ends_to_find(metadata.ledgers):
        if record.sealed:
            records.append(record)
            if not metadata.last_broker_time_ms:
                last_time = max(last_time, record.timestamp_ms)
            next_index = max(next_index, record.base_index)
            continue
        reader = await ledgers.open(record.ledger_id)
        if loss := may_have_lost(reader):
            last = reader.last_entry
            _log.error(
                "log %s: ledger %d may have further entries after entry %d: %s",
                name,
                record.ledger_id,
                last,
                loss,
            )
        if reader.last_entry < 0:
            empty.append(record.ledger_id)
            continue
        bounds = await bounds_of(reader, max(record.base_index, next_index, metadata.next_index))
        next_index = max(next_index, rules.index_behind(bounds.base_index, bounds.next_index))
        # Not the highest: earlier entries may have been written while the clock was ahead.
        last_time = bounds.time_ms or last_time
        time_ms = bounds.time_ms or last_time
        records.append(
            LedgerRecord(
                record.ledger_id,
                reader.last_entry + 1,
                reader.length_bytes,
                max(time_ms, 1),
                bounds.base_index,
            )
        )
    return replace(
        metadata,
        ledgers=tuple(records),
        next_index=max(next_index, metadata.next_index),
        last_broker_time_ms=last_time,
        deleted_ledgers=(*metadata.deleted_ledgers, *empty),
    )

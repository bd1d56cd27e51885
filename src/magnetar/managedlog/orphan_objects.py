"""Finds objects that no list of ledgers names, and deletes them.

An attempt is in the stored list before its first object is written, and its objects are deleted before it is
removed from the list: an object that no list names was left by a crash, or by a store that did not answer.
When in doubt an object is kept:
- only names that an attempt gave are considered;
- a value that cannot be read or decoded, anywhere, ends the search;
- an object is deleted when it is older than a safe age and no list named it after it was listed;
- only a store's owner deletes (`magnetar.tiered.ownership`), and only while metadata is trusted;
- objects from before the store belonged to this installation stay: lists elsewhere may name them, or lists
  that are newer than this metadata.
"""

from __future__ import annotations

import logging
from typing import Final
from uuid import UUID

from magnetar.base.clock import Clock
from magnetar.managedlog.log_metadata import decode
from magnetar.managedlog.orphans import log_paths
from magnetar.metadata.store import MetadataStore
from magnetar.metadata.trust import MetadataTrust
from magnetar.runtime.tasks import yield_loop
from magnetar.tiered.context import parse_object_name
from magnetar.tiered.storage import TieredStorage

_log = logging.getLogger("magnetar.managedlog")

_CLOCKS_MS: Final = 3_600_000
"""Milliseconds by which the clocks of broker and store may differ."""
_PER_TURN: Final = 50


async def named_attempts(store: MetadataStore) -> set[UUID]:
    """Attempts that a log names, including those to be deleted.

    Raises MetadataError, InvalidLogDataError: then they are not known.
    """
    named: set[UUID] = set()
    for number, path in enumerate(await log_paths(store)):
        if number % _PER_TURN == 0:
            await yield_loop()
        value = await store.get(path)
        if value is not None:
            named.update(copy.context.attempt for copy in decode(value.data, path).copies)
    return named


class OrphanObjects:
    """Searches the store of new copies."""

    def __init__(
        self, store: MetadataStore, storage: TieredStorage, *, trust: MetadataTrust, clock: Clock, age_ms: int
    ) -> None:
        """`trust`: whether the metadata is complete; `age_ms`: younger objects are left alone."""
        self._store = store
        self._storage = storage
        self._trust = trust
        self._clock = clock
        self._age_ms = age_ms

    async def round(self) -> int:
        """One search; returns the number of deleted objects.

        Raises MetadataError, InvalidLogDataError, StoreError: then nothing more is deleted.
        """
        if (doubt := self._trust.doubt) is not None:
            _log.warning("objects that no log names are kept: %s", doubt)
            return 0
        objects = self._storage.store(self._storage.url)
        found = [each async for each in objects.list("")]
        if not found:
            return 0
        holding = await self._storage.check_owner()
        from_ms = 0 if holding is None or not holding.adopted_ms else holding.adopted_ms + _CLOCKS_MS
        # After the list: objects that are named later only make fewer orphans.
        named = await named_attempts(self._store)
        orphans = []
        self._storage.figures.kept = 0
        for each in found:
            parsed = parse_object_name(each.name)
            if parsed is None or parsed[2] in named:
                continue
            if each.modified_ms < from_ms:
                self._storage.figures.kept += 1
            elif self._clock.settled_ms() - each.modified_ms >= self._age_ms:
                orphans.append(each)
        if self._storage.figures.kept:
            _log.warning(
                "%d objects in %s are named by no log and are older than the store's present owner: they "
                "are kept; `magnetar offload claim --sweep-earlier` deletes them",
                self._storage.figures.kept,
                objects.url,
            )
        for each in orphans:
            _log.warning(
                "object %s in %s, %d bytes, is named by no log: it is deleted",
                each.name,
                objects.url,
                each.size_bytes,
            )
            await objects.delete(each.name)
            self._storage.figures.orphans += 1
        return len(orphans)

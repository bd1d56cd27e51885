"""Finds ledgers that nothing names, and deletes them.

A ledger is made first and named after, by its log or a cursor: a crash in between leaves one that nobody
will ever read. When in doubt a ledger is kept:
- only those that say they are of a log are looked at (`custom_metadata`);
- what cannot be read or decoded anywhere ends the search;
- a ledger goes when it was named neither at the first look nor at the second, a long time later.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from magnetar.ledger.api import Ledgers
from magnetar.managedlog.cursor_codec import IN_STORE, decode_info
from magnetar.managedlog.cursor_store import APPLICATION, COMPONENT, SIDE_COMPONENT
from magnetar.managedlog.log_metadata import ROOT, decode
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.tasks import yield_loop

_log = logging.getLogger("magnetar.managedlog")

_PER_TURN: Final = 50
"""Logs looked at before others have the event loop."""
Listing = Callable[[], AsyncIterator[tuple[int, Mapping[str, bytes]]]]
"""All ledgers that exist, with their custom metadata."""


async def log_paths(store: MetadataStore) -> list[str]:
    """Paths of the values of all logs. Raises MetadataError."""
    level = [ROOT]
    # Tenants, namespaces, domains, logs.
    for _ in range(4):
        level = [f"{parent}/{child}" for parent in level for child in await store.children(parent)]
    return level


async def named_ledgers(store: MetadataStore) -> set[int]:
    """Ledgers that a log or a cursor names, those to be deleted included.

    Raises MetadataError, InvalidLogDataError: then it is not known.
    """
    named: set[int] = set()
    for number, path in enumerate(await log_paths(store)):
        if number % _PER_TURN == 0:
            await yield_loop()
        value = await store.get(path)
        if value is not None:
            metadata = decode(value.data, path)
            named.update(ledger.ledger_id for ledger in metadata.ledgers)
            named.update(metadata.deleted_ledgers)
        for child in await store.children(path):
            cursor = await store.get(f"{path}/{child}")
            if cursor is not None:
                info = decode_info(cursor.data, f"{path}/{child}")
                named.update((info.ledger_id, *info.deleted_ledgers, *info.side_ledgers))
    named.discard(IN_STORE)
    return named


def _is_of_a_log(custom: Mapping[str, bytes]) -> bool:
    return custom.get("application") == APPLICATION and custom.get("component") in (COMPONENT, SIDE_COMPONENT)


class OrphanSearch:
    """Looks twice, then rests."""

    def __init__(self, store: MetadataStore, ledgers: Ledgers, listing: Listing) -> None:
        self._store = store
        self._ledgers = ledgers
        self._listing = listing
        self._suspects: frozenset[int] | None = None
        self.deleted = 0
        """Ledgers that were deleted."""

    async def round(self) -> None:
        """One look; the second deletes what was found by both. To be called again when what was being made
        at the first is named.

        Raises MetadataError, LedgerError, StorageError, InvalidLogDataError: then nothing more is deleted,
        and the next call begins anew.
        """
        suspects, self._suspects = self._suspects, None
        if suspects is None:
            # The list first: what is named later only makes fewer suspects.
            listed = [ledger_id async for ledger_id, custom in self._listing() if _is_of_a_log(custom)]
            self._suspects = frozenset(listed) - await named_ledgers(self._store)
            return
        found = suspects - await named_ledgers(self._store) if suspects else suspects
        for ledger_id in sorted(found):
            _log.warning("ledger %d is named by no log and no cursor: it is deleted", ledger_id)
            await self._ledgers.delete(ledger_id)
            self.deleted += 1
        self._suspects = frozenset()

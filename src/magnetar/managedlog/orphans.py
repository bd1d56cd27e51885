"""Finds ledgers that neither a log nor a cursor names, and deletes them.

A ledger is created first and named after, by its log or a cursor: a crash in between leaves one that is
never read. But a topic whose value was lost leaves the same, and these have messages. When in doubt a ledger
is kept:
- only those that say they are of a log are considered (`custom_metadata`);
- a value that cannot be read or decoded, anywhere, ends the search;
- a ledger is deleted when no search of the whole grace period found its name, counted while a process runs
  and stored in metadata (`/magnetar/unnamed-ledgers`: JSON, ledger to seconds);
- and only while metadata is trusted (`metadata/trust.py`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from magnetar.base.errors import LedgerError, StorageError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import Ledgers, NoSuchLedgerError
from magnetar.managedlog.cursors.cursor_codec import IN_STORE, decode_info
from magnetar.managedlog.cursors.cursor_store import APPLICATION, COMPONENT, SIDE_COMPONENT
from magnetar.managedlog.log_metadata import ROOT, decode
from magnetar.metadata.documents import DamagedDocumentError, object_of
from magnetar.metadata.keys import UNNAMED_LEDGERS
from magnetar.metadata.store import MetadataStore
from magnetar.metadata.trust import MetadataTrust
from magnetar.runtime.tasks import yield_loop

_log = logging.getLogger("magnetar.managedlog")

_PER_TURN: Final = 50
"""Logs examined before other tasks run."""
Listing = Callable[[], AsyncIterator[tuple[LedgerId, Mapping[str, bytes]]]]
"""All ledgers that exist, with their custom metadata."""


async def log_paths(store: MetadataStore) -> list[str]:
    """Paths of the values of all logs. Raises MetadataError."""
    level = [ROOT]
    # Tenants, namespaces, domains, logs.
    for _ in range(4):
        level = [f"{parent}/{child}" for parent in level for child in await store.children(parent)]
    return level


async def named_ledgers(store: MetadataStore) -> set[LedgerId]:
    """Ledgers that a log or a cursor names, including those to be deleted.

    Raises MetadataError, InvalidLogDataError: then they are not known.
    """
    named: set[LedgerId] = set()
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
    """Lists all ledgers in its first search; later searches examine those that were not named."""

    def __init__(
        self,
        store: MetadataStore,
        ledgers: Ledgers,
        listing: Listing,
        trust: MetadataTrust,
        grace_s: int,
        interval_s: int,
    ) -> None:
        """`interval_s`: least seconds between two calls of `round`."""
        self._store = store
        self._ledgers = ledgers
        self._listing = listing
        self._trust = trust
        self._grace_s = grace_s
        self._interval_s = interval_s
        self._seen: dict[LedgerId, int] | None = None
        """Seconds for which each was seen unnamed; None before the first search."""
        self.deleted = 0
        """Ledgers that were deleted."""

    async def round(self) -> None:
        """One search; deletes the ledgers that all searches found unnamed for long enough.

        Raises MetadataError, LedgerError, StorageError, InvalidLogDataError: then nothing more is deleted.
        """
        if self._seen is None:
            # The list first: ledgers that are named later only make fewer suspects.
            listed = [ledger_id async for ledger_id, custom in self._listing() if _is_of_a_log(custom)]
            before = await self._noted()
            unnamed = set(listed) - await named_ledgers(self._store)
            self._tell(unnamed - set(before))
            await self._note({ledger_id: before.get(ledger_id, 0) for ledger_id in unnamed})
            return
        if not self._seen:
            return
        named = await named_ledgers(self._store)
        await self._note(
            {each: seen_s + self._interval_s for each, seen_s in self._seen.items() if each not in named}
        )
        if self._trust.is_trusted:
            for ledger_id in sorted(each for each, seen_s in self._seen.items() if seen_s >= self._grace_s):
                await self._delete(ledger_id)
                await self._note({each: seen_s for each, seen_s in self._seen.items() if each != ledger_id})

    def _tell(self, ledger_ids: set[LedgerId]) -> None:
        for ledger_id in sorted(ledger_ids):
            _log.warning(
                "ledger %d is named by no log and no cursor: it is kept for %d s", ledger_id, self._grace_s
            )

    async def _delete(self, ledger_id: LedgerId) -> None:
        try:
            reader = await self._ledgers.open(ledger_id)
        except NoSuchLedgerError:  # another process deleted it
            return
        except (LedgerError, StorageError) as error:
            # An unreadable ledger is evidence: it is kept for an operator.
            _log.error(
                "ledger %d, which no log or cursor names, cannot be read and is kept: %s", ledger_id, error
            )
            return
        _log.warning(
            "ledger %d of %d entries, %d bytes is named by no log and no cursor: it is deleted",
            ledger_id,
            reader.last_entry + 1,
            reader.length_bytes,
        )
        await self._ledgers.delete(ledger_id)
        self.deleted += 1

    async def _noted(self) -> dict[LedgerId, int]:
        value = await self._store.get(UNNAMED_LEDGERS)
        if value is None:
            return {}
        try:
            return {
                LedgerId(int(ledger)): int(seen_s)
                for ledger, seen_s in object_of(UNNAMED_LEDGERS, value.data).items()
            }
        except (DamagedDocumentError, TypeError, ValueError) as error:
            _log.error(
                "%s is unreadable, the grace period of its ledgers begins again: %s", UNNAMED_LEDGERS, error
            )
            return {}

    async def _note(self, seen: dict[LedgerId, int]) -> None:
        if seen:
            await self._store.put(UNNAMED_LEDGERS, json.dumps(seen).encode())
        elif await self._store.exists(UNNAMED_LEDGERS):
            await self._store.delete(UNNAMED_LEDGERS)
        self._seen = seen

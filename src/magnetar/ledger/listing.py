"""The ledgers that exist in the metadata store, and the ids that are left."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from magnetar.base.ids import LedgerId
from magnetar.ledger.ids import FIRST_ID, decode_reserved
from magnetar.ledger.ledger_metadata import LedgerMetadata, decode_ledger_metadata
from magnetar.ledger.paths import ID_GENERATOR, LEDGERS, ledger_id_of
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.store import MetadataStore, Value
from magnetar.runtime.tasks import yield_loop

_log = logging.getLogger("magnetar.ledger")


async def existing_ledgers(store: MetadataStore) -> AsyncIterator[tuple[LedgerId, LedgerMetadata]]:
    """All ledgers with their metadata, in no order; one that is created or deleted meanwhile may be missing
    or present.

    Raises MetadataError, LedgerMetadataError.
    """
    async for ledger_id, path in _ledgers(store):
        if (value := await store.get(path)) is not None:
            yield ledger_id, decode_ledger_metadata(value.data, path)


async def highest_ledger(store: MetadataStore) -> LedgerId:
    """The highest id of a ledger in the metadata store; -1: there is none. Raises MetadataError."""
    highest = LedgerId(-1)
    async for ledger_id, _ in _ledgers(store):
        highest = max(highest, ledger_id)
    return highest


async def first_unreserved(
    metadata: MetadataStore, stored: Value | None, known_end: LedgerId | None
) -> LedgerId:
    """The first id that was never assigned. `stored`: the generator's value; `known_end`: the folder of
    messages knows that no id from here on was ever assigned in it; None: it knows nothing.

    A damaged value is replaced by what the folder knows, as that is durable before any id is assigned.
    Without it the value is refused: the existing ledgers do not tell the ids of deleted ones, which logs and
    cursors may still name. Raises MetadataError, DamagedDocumentError.
    """
    try:
        start = decode_reserved(None if stored is None else stored.data, ID_GENERATOR)
    except DamagedDocumentError as error:
        if known_end is None:
            raise
        start = max(known_end, LedgerId(await highest_ledger(metadata) + 1), FIRST_ID)
        _log.error("ids of ledgers continue from %d, as the folder of messages knows: %s", start, error)
        return start
    # The metadata may be an older copy: ids that were assigned since must not be assigned again.
    return start if known_end is None else max(start, known_end)


async def _ledgers(store: MetadataStore) -> AsyncIterator[tuple[LedgerId, str]]:
    """Ids and paths, whatever their values are."""
    folders = [LEDGERS]
    while folders:
        folder = folders.pop()
        await yield_loop()
        for child in await store.children(folder):
            path = f"{folder}/{child}"
            ledger_id = ledger_id_of(path)
            if ledger_id is not None:
                yield ledger_id, path
            elif path != ID_GENERATOR:
                folders.append(path)

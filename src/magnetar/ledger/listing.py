"""The ledgers that exist in the metadata store."""

from __future__ import annotations

from collections.abc import AsyncIterator

from magnetar.base.ids import LedgerId
from magnetar.ledger.ledger_metadata import LedgerMetadata, decode_ledger_metadata
from magnetar.ledger.paths import ID_GENERATOR, LEDGERS, ledger_id_of
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.tasks import yield_loop


async def existing_ledgers(store: MetadataStore) -> AsyncIterator[tuple[LedgerId, LedgerMetadata]]:
    """All ledgers with their metadata, in no order; one that is created or deleted meanwhile may be missing
    or present.

    Raises MetadataError, LedgerMetadataError.
    """
    folders = [LEDGERS]
    while folders:
        folder = folders.pop()
        await yield_loop()
        for child in await store.children(folder):
            path = f"{folder}/{child}"
            ledger_id = ledger_id_of(path)
            if ledger_id is None:
                if path != ID_GENERATOR:
                    folders.append(path)
            elif (value := await store.get(path)) is not None:
                yield ledger_id, decode_ledger_metadata(value.data, path)

"""Which ledgers exist, by walking BookKeeper's tree."""

from __future__ import annotations

from collections.abc import AsyncIterator

from magnetar.base.ids import LedgerId
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.tasks import yield_loop


async def ledger_ids(store: MetadataStore, tree: BookKeeperTree) -> AsyncIterator[LedgerId]:
    """Every ledger, in no order; one that comes or goes meanwhile may be there or not.

    Any error ends the walk by its exception: half a list must never look like a whole one. Raises
    MetadataError.
    """
    folders = [tree.root]
    while folders:
        folder = folders.pop()
        await yield_loop()
        for child in await store.children(folder):
            path = f"{folder}/{child}"
            ledger_id = tree.ledger_id_of(path)
            if ledger_id is not None:
                yield ledger_id
            elif tree.holds_ledgers(path):
                folders.append(path)

"""Which ledgers exist, by walking BookKeeper's tree."""

from __future__ import annotations

from collections.abc import AsyncIterator

from magnetar.base.ids import LedgerId
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.tasks import yield_loop


async def ledger_ids(store: MetadataStore, tree: BookKeeperTree) -> AsyncIterator[LedgerId]:
    """Every ledger, in no order; a ledger made or deleted meanwhile may be listed or not.

    Any error ends the walk with an exception: a partial list must never look like a complete one. Raises
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

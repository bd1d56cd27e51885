"""New ledger ids, drawn as BookKeeper draws them: each is a sequential node's number.

    idgen/ID-<n>               ids below 2^31 - 1: n itself
    idgen-long/HOB-<high>/ID-<n>   high << 32 | n, with high from 1 on; the next one when n runs out

Once `idgen-long` exists all clients draw long ids. A node is deleted as soon as its number is known. A node
that is left behind does no harm: it is ephemeral.

Source: BookKeeper's ZkLedgerIdGenerator and LongZkLedgerIdGenerator.
"""

from __future__ import annotations

import contextlib
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.ledger_layouts import SHORT_ID_END
from magnetar.metadata.store import MetadataStore, NotFoundError

_HIGH_PREFIX: Final = "HOB-"
_DIGITS: Final = 10


class LedgerIds:
    """Draws ids of one tree."""

    def __init__(self, store: MetadataStore, tree: BookKeeperTree) -> None:
        self._store = store
        self._tree = tree
        self._long = False
        self._high = 1

    async def draw(self) -> int:
        """Draws a unique id. Raises MetadataError."""
        if not self._long:
            # Checked for each id: another process may have changed to long ids meanwhile.
            self._long = bool(await self._store.children(self._tree.long_id_generator))
        if not self._long:
            number = await self._next(f"{self._tree.id_generator}/ID-")
            if number is not None and number < min(SHORT_ID_END, self._tree.layout.id_end):
                return number
            if self._tree.layout.id_end == SHORT_ID_END:
                raise MetadataError(f"{self._tree.root}: there are no ledger ids left in this layout")
            self._long = True
        return await self._draw_long()

    async def _draw_long(self) -> int:
        folder = self._tree.long_id_generator
        highs = [int(name[len(_HIGH_PREFIX) :]) for name in await self._store.children(folder)]
        self._high = max([self._high, *highs])
        while True:
            number = await self._next(f"{folder}/{_HIGH_PREFIX}{self._high:0{_DIGITS}d}/ID-")
            if number is not None:
                return self._high << 32 | number
            self._high += 1

    async def _next(self, prefix: str) -> int | None:
        """The next number below a parent; None when it has run out of 31 bits."""
        drawn = (await self._store.put(prefix, b"", ephemeral=True, sequential=True)).path
        # The end of an earlier session took it: the number is used up all the same.
        with contextlib.suppress(NotFoundError):
            await self._store.delete(drawn)
        digits = drawn[len(prefix) :]
        # ZooKeeper counts on with negative numbers.
        return int(digits) if digits.isdigit() and int(digits) < SHORT_ID_END else None

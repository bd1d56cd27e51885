"""Ledgers in BookKeeper's tree, on any metadata store."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

from magnetar.base.ids import LedgerId
from magnetar.ledger.api import NoSuchLedgerError
from magnetar.ledger.ledger_metadata import LedgerMetadata, decode_ledger_metadata, encode_ledger_metadata
from magnetar.ledger.registry import LedgerExistsError, StoredLedger
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.id_generator import LedgerIds
from magnetar.metadata.bookkeeper.listing import ledger_ids
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    MetadataStore,
    NotFoundError,
    OutcomeUnknownError,
    SessionEvent,
)

_ATTEMPTS: Final = 3
"""Attempts at a write whose outcome is unknown."""


def draw_token() -> int:
    """A random number that identifies one creation."""
    return secrets.randbits(63)


class TreeLedgerRegistry:
    """A `LedgerRegistry` whose only state is the store's."""

    def __init__(
        self, store: MetadataStore, tree: BookKeeperTree, *, creation_token: Callable[[], int] = draw_token
    ) -> None:
        """`creation_token`: random, 0 <= token < 2^63."""
        self._store = store
        self._tree = tree
        self._ids = LedgerIds(store, tree)
        self._creation_token = creation_token

    async def create(self, metadata: LedgerMetadata, ledger_id: LedgerId | None = None) -> StoredLedger:
        if metadata.creation_token is None:
            metadata = replace(metadata, creation_token=self._creation_token())
        value = encode_ledger_metadata(metadata)
        while True:
            chosen = await self._ids.draw() if ledger_id is None else ledger_id
            stored = await self._create_at(LedgerId(chosen), metadata, value)
            if stored is not None:
                return stored
            if ledger_id is not None:
                raise LedgerExistsError(ledger_id)

    async def _create_at(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, value: bytes
    ) -> StoredLedger | None:
        """The new ledger; None when another client's exists."""
        path = self._tree.ledger(ledger_id)
        for attempt in range(_ATTEMPTS):
            try:
                stat = await self._store.put(path, value, expected_version=MUST_NOT_EXIST)
            except BadVersionError:
                # Our own first attempt may have succeeded although its answer was lost.
                return await self._with_token(ledger_id, metadata.creation_token)
            except OutcomeUnknownError:
                # Another attempt with the same id: it shows the outcome of the first one.
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return StoredLedger(ledger_id, metadata, stat.version)
        raise AssertionError("an attempt returns or raises")

    async def _with_token(self, ledger_id: LedgerId, token: int | None) -> StoredLedger | None:
        """The ledger, if it is the one of this creation."""
        try:
            found = await self.read(ledger_id)
        except NoSuchLedgerError:
            return None
        return found if found.metadata.creation_token == token else None

    async def read(self, ledger_id: LedgerId) -> StoredLedger:
        await self._store.sync()
        value = await self._store.get(self._tree.ledger(ledger_id))
        if value is None:
            raise NoSuchLedgerError(ledger_id)
        return StoredLedger(
            ledger_id, decode_ledger_metadata(value.data, self._tree.ledger(ledger_id)), value.stat.version
        )

    async def write(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, expected_version: int
    ) -> StoredLedger:
        stat = await self._store.put(
            self._tree.ledger(ledger_id), encode_ledger_metadata(metadata), expected_version=expected_version
        )
        return StoredLedger(ledger_id, metadata, stat.version)

    async def delete(self, ledger_id: LedgerId, *, expected_version: int | None = None) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                await self._store.delete(self._tree.ledger(ledger_id), expected_version=expected_version)
            except NotFoundError:  # it is deleted, as requested
                return
            except OutcomeUnknownError:
                # An id is used once: a deleted ledger is not found, and one that is found is still to be
                # deleted.
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return

    def watch(self, ledger_id: LedgerId, changed: Callable[[], None]) -> Callable[[], None]:
        def on_session(event: SessionEvent) -> None:
            if event in (SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED):
                changed()

        unwatch = self._store.watch(self._tree.ledger(ledger_id), lambda _: changed())
        unwatch_session = self._store.watch_session(on_session)

        def cancel() -> None:
            unwatch()
            unwatch_session()

        return cancel

    def ledger_ids(self) -> AsyncIterator[LedgerId]:
        return ledger_ids(self._store, self._tree)

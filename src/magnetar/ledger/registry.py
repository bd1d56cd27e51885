"""Ledgers in the metadata store: ids, metadata, and who may write them.

This is the contract; `tree_registry.py` keeps it in BookKeeper's tree on any `MetadataStore`. The other
half, bookies and their cookies, is `magnetar.metadata.bookkeeper.registry`.

Source: BookKeeper's ledger manager and id generator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from magnetar.base.errors import LedgerError
from magnetar.ledger.ledger_metadata import LedgerMetadata


class LedgerExistsError(LedgerError):
    """A ledger has the id already."""

    def __init__(self, ledger_id: int) -> None:
        super().__init__(f"ledger {ledger_id} exists already")
        self.ledger_id = ledger_id


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger's metadata as it was read or written."""

    ledger_id: int
    metadata: LedgerMetadata
    version: int
    """What the next write must expect."""


class LedgerRegistry(Protocol):
    """Ids and metadata of one cluster's ledgers.

    All calls raise MetadataError when the store refuses or cannot be reached, LedgerMetadataError for a
    value that is no ledger metadata.
    """

    async def create(self, metadata: LedgerMetadata, ledger_id: int | None = None) -> StoredLedger:
        """Stores a new ledger under an id that no ledger had before, or under `ledger_id`.

        The caller need not set `creation_token`: it is drawn here when absent, and tells a creation whose
        answer was lost from somebody else's. Raises LedgerExistsError for a `ledger_id` that is taken.
        """

    async def read(self, ledger_id: int) -> StoredLedger:
        """The newest metadata, also what others wrote before the call. Raises NoSuchLedgerError."""

    async def write(self, ledger_id: int, metadata: LedgerMetadata, expected_version: int) -> StoredLedger:
        """Compare and set. Raises BadVersionError (its `actual` is None when the ledger was deleted)."""

    async def delete(self, ledger_id: int, *, expected_version: int | None = None) -> None:
        """Deletes the metadata; not an error when there is none. Raises BadVersionError."""

    def watch(self, ledger_id: int, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls back, on the event loop, when `read` may answer differently; returns the cancel."""

    def ledger_ids(self) -> AsyncIterator[int]:
        """Every ledger, in no order; one that comes or goes meanwhile may be there or not.

        An error ends the iteration by its exception: what was not listed is not known to be gone.
        """

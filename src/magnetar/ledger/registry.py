"""Ledgers in the metadata store: ids and metadata, with compare and set.

This is the contract; `tree_registry.py` implements it in BookKeeper's tree on any `MetadataStore`. The other
half, bookies and their cookies, is `magnetar.metadata.bookkeeper.registry`.

Source: BookKeeper's ledger manager and id generator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from magnetar.base.errors import LedgerError
from magnetar.base.ids import LedgerId
from magnetar.ledger.ledger_metadata import LedgerMetadata


class LedgerExistsError(LedgerError):
    """A ledger has the id already."""

    def __init__(self, ledger_id: LedgerId) -> None:
        super().__init__(f"ledger {ledger_id} exists already")
        self.ledger_id = ledger_id


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger's metadata as it was read or written."""

    ledger_id: LedgerId
    metadata: LedgerMetadata
    version: int
    """The version that the next write must expect."""


class LedgerRegistry(Protocol):
    """Ids and metadata of one cluster's ledgers.

    All calls raise MetadataError when the store refuses or cannot be reached, LedgerMetadataError when a
    value is not ledger metadata.
    """

    async def create(self, metadata: LedgerMetadata, ledger_id: LedgerId | None = None) -> StoredLedger:
        """Stores a new ledger under an id that was never used, or under `ledger_id`.

        The caller need not set `creation_token`: it is drawn here when absent, and tells a creation whose
        answer was lost from another client's. Raises LedgerExistsError when `ledger_id` is used.
        """

    async def read(self, ledger_id: LedgerId) -> StoredLedger:
        """The newest metadata, including all writes before the call. Raises NoSuchLedgerError."""

    async def write(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, expected_version: int
    ) -> StoredLedger:
        """Compare and set. Raises BadVersionError (its `actual` is None when the ledger was deleted)."""

    async def delete(self, ledger_id: LedgerId, *, expected_version: int | None = None) -> None:
        """Deletes the metadata; not an error when there is none. Raises BadVersionError."""

    def watch(self, ledger_id: LedgerId, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls back on the event loop when `read` may answer differently; returns the cancel."""

    def ledger_ids(self) -> AsyncIterator[LedgerId]:
        """All ledgers, in no order; one that is created or deleted meanwhile may be missing or present.

        An error is raised and ends the iteration: ledgers that were not listed then may exist.
        """

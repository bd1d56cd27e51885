"""What the managed log knows of tiered storage."""

from __future__ import annotations

from typing import Protocol

from magnetar.ledger.api import LedgerReader
from magnetar.tiered.context import OffloadedCopy


class Tiers(Protocol):
    """Copies of ledgers in object stores."""

    async def open(
        self, log_name: str, copy: OffloadedCopy, *, entries: int, size_bytes: int
    ) -> LedgerReader:
        """Reads a complete copy; `entries` and `size_bytes` are those of the ledger.

        Its `read` raises MissingObjectError, DamagedObjectError, StoreError, which name object and log.
        """

    async def delete(self, log_name: str, copy: OffloadedCopy) -> None:
        """Deletes the objects of an attempt, however far it came. Not an error when there are none.

        Raises StoreError: some may be left.
        """

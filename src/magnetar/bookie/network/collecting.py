"""Deletes what lies here of ledgers that do not exist any more.

Fails safe: only a ledger that a whole listing did not name, and that the store then certainly does not have,
is gone. Any error ends the round with nothing deleted that was not certain.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

_log = logging.getLogger("magnetar.bookie.network")


class ExistingLedgers(Protocol):
    """The part of `BookieRegistry` that tells which ledgers exist."""

    async def ledger_exists(self, ledger_id: int) -> bool:
        """Whether it exists certainly or certainly not; sees what others wrote before the call."""

    def ledger_ids(self) -> AsyncIterator[int]:
        """Every ledger; an error ends the iteration by its exception."""


async def collect(
    known: set[int], existing: ExistingLedgers, delete: Callable[[int], Awaitable[None]]
) -> int:
    """One round; returns how many ledgers were deleted.

    `known`: what lies here, taken before the round: a ledger exists before its first entry comes, so one
    that is not listed is no new one. Raises MetadataError, StorageError.
    """
    missing = set(known)
    async for ledger_id in existing.ledger_ids():
        missing.discard(ledger_id)
    count = 0
    for ledger_id in sorted(missing):
        if await existing.ledger_exists(ledger_id):
            _log.error("ledger %d exists and was not listed", ledger_id)
            continue
        await delete(ledger_id)
        count += 1
    return count

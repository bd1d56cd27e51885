"""Whether a ledger id that the metadata assigned was assigned before.

Metadata restored from an older copy counts ledger ids from the state of that copy. Entries of the new ledger
would be stored among those of the old one on the same bookies, and could be taken for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from magnetar.base.ids import LedgerId
from magnetar.ledger.client.pool import BookiePool
from magnetar.runtime.tasks import happens_within
from magnetar.wire.bookkeeper.status import Status

_LAST: Final = -1
_PATIENCE_S: Final = 0.5
"""Seconds to wait for bookies that hang: a new ledger must not wait for them."""
_USED: Final = frozenset((Status.OK, Status.NO_ENTRY, Status.FENCED, Status.UNAUTHORIZED))
"""Outcomes that only a bookie gives that knows the ledger."""


async def is_used(pool: BookiePool, ledger_id: LedgerId, bookies: Sequence[str]) -> bool:
    """Whether any of the bookies certainly holds something of the ledger; bookies without an answer count as
    no."""
    answers: list[Status] = []
    over = asyncio.Event()

    def answered(status: Status, entry: bytes | None) -> None:
        answers.append(status)
        if status in _USED or len(answers) == len(set(bookies)):
            over.set()

    for bookie in sorted(set(bookies)):
        pool.read(bookie, ledger_id, _LAST, answered)
    await happens_within(over, _PATIENCE_S)
    return not _USED.isdisjoint(answers)

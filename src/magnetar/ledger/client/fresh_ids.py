"""Whether an id that metadata has given away was given away before.

Metadata that was restored from an older copy counts ledger ids from where the copy stood. Entries of the new
ledger would lie among those of the first one on the same bookies, and either be taken for the other's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from magnetar.ledger.client.pool import BookiePool
from magnetar.runtime.tasks import happens_within
from magnetar.wire.bookkeeper.status import Status

_LAST: Final = -1
_PATIENCE_S: Final = 0.5
"""For bookies that hang: they are not what a new ledger waits for."""
_USED: Final = frozenset((Status.OK, Status.NO_ENTRY, Status.FENCED, Status.UNAUTHORIZED))
"""What only a bookie answers that knows the ledger."""


async def is_used(pool: BookiePool, ledger_id: int, bookies: Sequence[str]) -> bool:
    """Whether any of the bookies certainly holds something of the ledger; those that do not answer do not."""
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

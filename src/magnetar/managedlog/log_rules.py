"""The rules of a log's ledgers on which its entries depend (pure).

They are handed to the logs of a process as an object, so that the simulator can hand in broken ones and show
that each is needed (`sim/cluster/mutations.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Sequence
from typing import Final, Protocol, TypeVar

from magnetar.base.ids import LedgerId


class RuledLedger(Protocol):
    """What a log's list has of a ledger, as far as rules look at it."""

    @property
    def sealed(self) -> bool: ...


Record = TypeVar("Record", bound=RuledLedger)


class LogRules:
    """What must be stored before what, and what the next owner looks at."""

    __slots__ = ()

    def listed(self, storing: Coroutine[object, object, None], *, is_first: bool) -> Awaitable[None]:
        """What is waited for before a new ledger takes entries: that it is in the stored list. The next owner
        reads no other ledgers. `is_first`: of this owner."""
        return storing

    def surely_unlisted(self, doubtful: Sequence[LedgerId], *, is_stored: bool) -> Sequence[LedgerId]:
        """Those ledgers that may be deleted, as they are not in the stored list, of those whose listing had
        no answer. `is_stored`: a later change was stored, which proves that none of the earlier ones was."""
        return doubtful if is_stored else ()

    def holds_while_draining(self) -> bool:
        """Whether the appends of the next ledger are held until the one before is durable to its end.
        Otherwise a crash could keep a later entry and lose an earlier one."""
        return True

    def ends_to_find(self, records: Sequence[Record]) -> Sequence[Record]:
        """The ledgers that a new owner keeps: all. It looks for the end of each one without a stored end, not
        of the last alone: there are two while one drains."""
        return records

    def index_behind(self, base_index: int, next_index: int) -> int:
        """The index of the first message behind a ledger, by what its entries say: `base_index` before its
        first message, `next_index` behind its last."""
        return next_index


LOG_RULES: Final = LogRules()

"""The ends of transactions that need no further work (pure).

A page holds the outcomes of 1,024 consecutive transactions, two bits each, lowest first: 0 unknown, 1
committed, 2 aborted; 256 bytes, little-endian. It is what remains of their headers, so that a client that
repeats the request to end gets the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from magnetar.broker.transactions.ids import TxnState

PAGE: Final = 1_024
"""Transactions of a page."""
PAGE_BYTES: Final = PAGE // 4
PAGES_MAX: Final = 1_024
"""Pages kept of a coordinator: outcomes of the last million transactions, in 256 KiB."""

_BITS: Final = {TxnState.COMMITTED: 1, TxnState.ABORTED: 2}
_STATES: Final = {1: TxnState.COMMITTED, 2: TxnState.ABORTED}


class Outcomes:
    """The outcomes of one coordinator."""

    __slots__ = ("_lost", "_pages", "damaged")

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        self.damaged: dict[int, bytes] = {}
        """Stored pages that cannot be read, by number. Before one is overwritten its bytes are put aside."""
        self._lost: dict[int, str] = {}
        """Where the outcomes of a page lie that are not known, in words."""

    def __len__(self) -> int:
        return len(self._pages)

    def of(self, sequence: int) -> TxnState | None:
        """None: it is not known, any more or yet."""
        number, index = divmod(sequence, PAGE)
        return _STATES.get((self._pages.get(number, 0) >> 2 * index) & 3)

    def lost(self, sequence: int) -> str:
        """Why an outcome that was stored is not known, in words; empty: it was not lost."""
        return self._lost.get(sequence // PAGE, "")

    def add(self, ended: Iterable[tuple[int, TxnState]]) -> set[int]:
        """Notes outcomes; the pages that changed."""
        changed = set()
        for sequence, state in ended:
            number, index = divmod(sequence, PAGE)
            self._pages[number] = self._pages.get(number, 0) | _BITS[state] << 2 * index
            changed.add(number)
        return changed

    def page(self, number: int) -> bytes:
        """A page as stored."""
        return self._pages[number].to_bytes(PAGE_BYTES, "little")

    def read(self, number: int, page: bytes) -> None:
        """Adds a stored page. Raises ValueError for one of another size, which is kept as damaged."""
        if len(page) != PAGE_BYTES:
            self.damaged[number] = page
            raise ValueError(f"a page of {len(page)} bytes, not {PAGE_BYTES}")
        self._pages[number] = int.from_bytes(page, "little")

    def lose(self, number: int, where: str) -> None:
        """Outcomes of this page are not known: it is, or was, damaged. `where` says it in words."""
        self._lost[number] = where

    def put_aside(self, numbers: Iterable[int]) -> None:
        """The damaged bytes of these pages are durable elsewhere."""
        for number in numbers:
            self.damaged.pop(number, None)

    def surplus(self) -> list[int]:
        """The oldest pages beyond the number that is kept."""
        return sorted(self._pages)[: max(0, len(self._pages) - PAGES_MAX)]

    def forget(self, number: int) -> None:
        """The page is not in the store any more."""
        del self._pages[number]

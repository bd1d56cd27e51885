"""How transactions ended that nobody has anything to do for any more (pure).

A page holds the outcomes of 1,024 transactions that follow each other, two bits each, lowest first:
0 unknown, 1 committed, 2 aborted; 256 bytes, little-endian. It is what is left of their headers, so that a
client that asks for the end again, for whatever reason, hears what became of it.
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
    """Of one coordinator."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def of(self, sequence: int) -> TxnState | None:
        """None: it is not known, any more or yet."""
        number, index = divmod(sequence, PAGE)
        return _STATES.get((self._pages.get(number, 0) >> 2 * index) & 3)

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
        """Takes over a stored page."""
        self._pages[number] = int.from_bytes(page, "little")

    def surplus(self) -> list[int]:
        """The oldest pages beyond those that are kept."""
        return sorted(self._pages)[: max(0, len(self._pages) - PAGES_MAX)]

    def forget(self, number: int) -> None:
        """The page is not in the store any more."""
        del self._pages[number]

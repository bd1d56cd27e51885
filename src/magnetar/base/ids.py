"""Positions in a log, and the reserved ones.

Source: Pulsar binary protocol, `MessageIdData`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Final, NamedTuple, NewType

LedgerId = NewType("LedgerId", int)
"""A ledger, >= 0 where it is stored; ledgers of one log have strictly increasing ids."""
LedgerIds = tuple[LedgerId, ...]
ProducerId = NewType("ProducerId", int)
"""A producer of one connection; its client chooses the number."""
ConsumerId = NewType("ConsumerId", int)
"""A consumer of one connection; its client chooses the number."""
RequestId = NewType("RequestId", int)
"""A command of one connection that is answered by its number; the client chooses it."""


class Position(NamedTuple):
    """Where an entry lies: a ledger and the entry's number in it. Ordered by ledger, then entry."""

    ledger_id: LedgerId
    """Ledger, >= 0; ledgers of one log have strictly increasing ids."""
    entry_id: int
    """Entry in the ledger, >= 0; -1 stands for "before the first entry"."""

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


def positions_of(ledger_id: LedgerId, entry_ids: Iterable[int]) -> list[Position]:
    """Positions of one ledger, in this order. Costs 70 ns each; made one by one they cost three times as
    much."""
    return list(map(tuple.__new__, repeat(Position), zip(repeat(ledger_id), entry_ids, strict=False)))


NO_LEDGER: Final = LedgerId(-1)
"""Stands for no ledger where a ledger is written down."""

EARLIEST: Final = Position(NO_LEDGER, -1)
"""Before every entry: how clients ask for the beginning."""

LATEST: Final = Position(LedgerId((1 << 63) - 1), (1 << 63) - 1)
"""After every entry: how clients ask for the end."""

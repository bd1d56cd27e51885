"""Names of transactions, and what may become of one."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from magnetar.wire.events import TxnBits


class TxnId(NamedTuple):
    """A transaction: its coordinator, and its number there."""

    coordinator: int
    """Most significant 64 bits on the wire."""
    sequence: int
    """Least significant 64 bits; every transaction of a coordinator has a higher one than the earlier
    ones."""

    def __str__(self) -> str:
        return f"({self.coordinator},{self.sequence})"


def txn_id(bits: TxnBits) -> TxnId:
    """The id as commands carry it."""
    return TxnId(bits[0], bits[1])


class TxnState(Enum):
    """The decision on a transaction. Only OPEN ever changes."""

    OPEN = "OPEN"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"

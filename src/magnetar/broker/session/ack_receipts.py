"""Receipts of acknowledgements that a connection waits for.

A client may acknowledge for hours while the disk stalls, and each receipt that it asked for is held until the
cursor is durable. So a connection that waits for too many is not read until half of them have left.
"""

from __future__ import annotations

import weakref
from typing import Final, Protocol

WAITING_MAX: Final = 2_000
"""Ack receipts that one connection may wait for before reading stops: about 100 bytes each, and at 5 ms to
durability more acknowledgements than a connection can send. Those of one socket read are added to it."""

_REASON: Final = "receipts of acknowledgements"


class ReceiptConnection(Protocol):
    """The connection."""

    def throttle(self, reason: object) -> None:
        """It is not read."""

    def unthrottle(self, reason: object) -> None:
        """It is read, unless something else keeps it from being."""


class AckReceipts:
    """The ack receipts of one connection."""

    __slots__ = ("_connection", "_held", "waiting")

    def __init__(self, connection: ReceiptConnection) -> None:
        # It calls only itself: a connection that is lost is freed without the garbage collector.
        self._connection = weakref.proxy(connection)
        self._held = False
        self.waiting = 0
        """Receipts that were asked for and have not left."""

    def asked(self) -> None:
        """A receipt was asked for; `answered` follows once."""
        self.waiting += 1
        if self.waiting > WAITING_MAX and not self._held:
            self._held = True
            self._connection.throttle(_REASON)

    def answered(self) -> None:
        """It left, or an error did in its place."""
        self.waiting -= 1
        if self._held and self.waiting <= WAITING_MAX // 2:
            self._held = False
            self._connection.unthrottle(_REASON)

"""Bounds the TLS handshakes of a bookie's clients. Decides and closes; no I/O of its own.

A handshake takes some 40 kB, and the address space of a read buffer of 256 KiB, which later allocations fill:
memory taken by many handshakes at once does not come back. Clients that have not authenticated may begin
them, so their number is bounded. When all places are taken, the address that has most of them loses its
oldest one to the newest. A young one stays, and the newest of its address is refused: else clients that all
come at once would push each other out before they finish.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final, Protocol

_log = logging.getLogger("magnetar.bookie.network")

HANDSHAKES_MAX: Final = 256
"""Unfinished handshakes of one bookie. Each client has one connection, so few begin at once."""
YOUNG_S: Final = 1.0
"""Seconds for which a handshake is not ended in favour of another one of its address."""


class Securing(Protocol):
    """The part of a connection that counts here."""

    @property
    def peer(self) -> str:
        """ADDRESS:PORT of the client."""

    def close(self) -> None:
        """Closes the connection."""


class Handshakes:
    """The unfinished handshakes of one bookie."""

    def __init__(self) -> None:
        self._under_way: dict[Securing, tuple[str, float]] = {}
        """Address and begin of each, the oldest first."""

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, connection: Securing, now_s: float) -> bool:
        """Counts a handshake that begins, until `end`; False: there are too many, so the connection was
        closed. `now_s`: monotonic time in seconds."""
        address = connection.peer.rpartition(":")[0]
        if len(self._under_way) >= HANDSHAKES_MAX and not self._end_one(address, now_s):
            _log.warning("%s: connection closed: too many TLS handshakes of its address", connection.peer)
            connection.close()
            return False
        self._under_way[connection] = address, now_s
        return True

    def end(self, connection: Securing) -> None:
        """The handshake has succeeded or failed."""
        self._under_way.pop(connection, None)

    def _end_one(self, newest: str, now_s: float) -> bool:
        """Ends the oldest handshake of the address with most of them; False: `newest` is one with as many,
        and the oldest is young."""
        addresses = Counter(address for address, _ in self._under_way.values())
        ((crowded, most),) = addresses.most_common(1)
        oldest, since_s = next(
            (each, since_s) for each, (address, since_s) in self._under_way.items() if address == crowded
        )
        if addresses[newest] == most and now_s - since_s < YOUNG_S:
            return False
        # It fails in the next turn of the loop, and many may begin in this one: each must end another one.
        del self._under_way[oldest]
        _log.warning("%s: connection closed: others wait for the place of its TLS handshake", oldest.peer)
        oldest.close()
        return True

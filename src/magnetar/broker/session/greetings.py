"""Connections that have not authenticated yet (pure): for how long, how many, and how much of them is kept.

They cost a client nothing, so they must cost the broker little: CONNECT must come soon, the bytes before it
are few, and with too many such connections the oldest gives way to the newest. A client that sends CONNECT at
once is not affected.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from magnetar.observability.metrics import Exposition

CONNECT_BYTES_MAX: Final = 64 << 10
"""A CONNECT may be so large: two tokens of 16 KiB in base64, a proxy's and its client's, and some more."""
_WAITING_MAX: Final = 4_096
"""Connections that may wait for their CONNECT."""
_KEPT_BYTES_MAX: Final = 16 << 20
"""Bytes of incomplete CONNECTs, over all connections."""
LOOK_S: Final = 1.0
"""Seconds between two calls of `look`."""


class Guest(Protocol):
    """A connection."""

    def abort(self, reason: str) -> None:
        """Drops it."""


class Greetings:
    """All of them, the oldest first."""

    __slots__ = ("_guests", "_kept_bytes", "_looks", "_looks_max", "dropped")

    def __init__(self, deadline_s: float) -> None:
        self._guests: dict[Guest, tuple[int, int]] = {}
        """The number of the check before which each came, and the bytes that are kept of it."""
        self._looks = 0
        self._looks_max = max(1, round(deadline_s / LOOK_S))
        self._kept_bytes = 0
        self.dropped = 0
        """Connections that were dropped before they authenticated."""

    def __len__(self) -> int:
        return len(self._guests)

    def came(self, guest: Guest) -> None:
        """A connection was opened."""
        if len(self._guests) >= _WAITING_MAX:
            self.drop_oldest()
        self._guests[guest] = self._looks, 0

    def ended(self, guest: Guest) -> None:
        """Its CONNECT has arrived, or it was closed."""
        _, kept = self._guests.pop(guest, (0, 0))
        self._kept_bytes -= kept

    def keep(self, guest: Guest, size_bytes: int) -> bool:
        """Counts this many bytes of its CONNECT until the rest arrives; returns whether they may be kept."""
        came, before = self._guests.get(guest, (self._looks, 0))
        if guest in self._guests:
            self._guests[guest] = came, size_bytes
            self._kept_bytes += size_bytes - before
        return self._kept_bytes <= _KEPT_BYTES_MAX

    def drop_oldest(self) -> Guest | None:
        """Drops the oldest to free its place; returns it, None: there is none."""
        oldest = next(iter(self._guests), None)
        if oldest is not None:
            self._drop(oldest, "no CONNECT yet, and others wait for its place")
        return oldest

    def look(self) -> None:
        """Drops connections that have waited too long."""
        self._looks += 1
        while self._guests:
            oldest, (came, _) = next(iter(self._guests.items()))
            if self._looks - came <= self._looks_max:
                return
            self._drop(oldest, "no CONNECT in time")

    def collect_metrics(self, out: Exposition) -> Iterable[None]:
        """A collector of `/metrics`."""
        out.gauge("magnetar_connections_waiting", "Connections that have not sent CONNECT yet.", len(self))
        out.counter(
            "magnetar_connections_dropped_total",
            "Connections that were closed before they sent CONNECT.",
            self.dropped,
        )
        return ()

    def _drop(self, guest: Guest, reason: str) -> None:
        self.ended(guest)
        self.dropped += 1
        guest.abort(reason)

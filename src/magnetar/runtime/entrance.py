"""Counts the clients' sockets from the moment they are accepted (pure).

A client that has not authenticated costs a descriptor all the same, and without descriptors no segment can be
created: so the bound applies before any byte is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from magnetar.observability.metrics import Exposition, labels

PLACES: Final = "places"
ADDRESS: Final = "address"
FILES: Final = "files"
TLS: Final = "tls"
"""Reasons why a socket is closed unread: all places are taken, or those of its address; the process may open
no more files; its TLS handshake did not finish."""
REASONS: Final = (PLACES, ADDRESS, FILES, TLS)


class Entrance:
    """The sockets of one kind of listener."""

    __slots__ = ("_by_address", "_count", "_per_address_max", "_sockets_max", "kind", "refused")

    def __init__(self, kind: str, sockets_max: int = 0, per_address_max: int = 0) -> None:
        """`kind` names the listeners in logs and metrics; a bound of 0 means no limit."""
        self.kind = kind
        self.refused: dict[str, int] = dict.fromkeys(REASONS, 0)
        """Sockets closed unread, by reason."""
        self._sockets_max = sockets_max
        self._per_address_max = per_address_max
        self._count = 0
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        """Open sockets."""
        return self._count

    def obstacle(self, address: str) -> str:
        """Why a socket of this address may not enter now, one of REASONS; "" when it may."""
        if 0 < self._sockets_max <= self._count:
            return PLACES
        return ADDRESS if 0 < self._per_address_max <= self._by_address.get(address, 0) else ""

    def enter(self, address: str, *, beyond: bool = False) -> str:
        """Counts a socket; returns the reason, one of REASONS, when it may not enter, else "". `beyond`: it
        may enter in any case, as another one is about to leave."""
        reason = "" if beyond else self.obstacle(address)
        if reason:
            self.refused[reason] += 1
        else:
            self._count += 1
            self._by_address[address] += 1
        return reason

    def leave(self, address: str) -> None:
        """A socket that entered was closed."""
        self._count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            # Addresses that are never seen again must not stay in the table.
            del self._by_address[address]

    def collect_metrics(self, out: Exposition) -> Iterable[None]:
        """A collector of `/metrics`."""
        kind = ("listener", self.kind)
        out.gauge(
            "magnetar_sockets",
            "Open sockets of clients, counted from their acceptance.",
            len(self),
            labels(kind),
        )
        for reason, count in self.refused.items():
            out.counter(
                "magnetar_sockets_refused_total",
                "Sockets that were closed because a limit was reached, before a byte was read.",
                count,
                labels(kind, ("reason", reason)),
            )
        return ()

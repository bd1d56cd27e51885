"""How many sockets of clients are there, counted from the moment in which they are accepted (pure).

A client that has not said who it is costs a descriptor all the same, and without descriptors no segment can
be made: so there is a bound before anything is read.
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
"""Why a socket was closed unheard: all places are taken, or those of its address; the process may open no
more files; it did not finish its TLS handshake."""
REASONS: Final = (PLACES, ADDRESS, FILES, TLS)


class Entrance:
    """The sockets of one kind of listeners."""

    __slots__ = ("_by_address", "_count", "_per_address_max", "_sockets_max", "kind", "refused")

    def __init__(self, kind: str, sockets_max: int = 0, per_address_max: int = 0) -> None:
        """`kind` names the listeners in logs and metrics; 0 is without limit."""
        self.kind = kind
        self.refused: dict[str, int] = dict.fromkeys(REASONS, 0)
        """Sockets that were closed unheard, by reason."""
        self._sockets_max = sockets_max
        self._per_address_max = per_address_max
        self._count = 0
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        """Sockets that are there."""
        return self._count

    def obstacle(self, address: str) -> str:
        """Why a socket of this address may not come in now, one of REASONS; "": it may."""
        if 0 < self._sockets_max <= self._count:
            return PLACES
        return ADDRESS if 0 < self._per_address_max <= self._by_address.get(address, 0) else ""

    def enter(self, address: str, *, beyond: bool = False) -> str:
        """Counts a socket; the reason, one of REASONS, when it may not come in, else "". `beyond`: it may in
        any case, as another one is about to leave."""
        reason = "" if beyond else self.obstacle(address)
        if reason:
            self.refused[reason] += 1
        else:
            self._count += 1
            self._by_address[address] += 1
        return reason

    def leave(self, address: str) -> None:
        """A socket that was let in is closed."""
        self._count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            # Addresses come and go for years.
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

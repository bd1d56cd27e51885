"""All open WebSockets of a broker: their limits and statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from magnetar.base.names import TopicName
from magnetar.broker.service import Broker
from magnetar.observability.metrics import Exposition, labels
from magnetar.websocket.errors import TooManySocketsError
from magnetar.websocket.far_lines import FarLines
from magnetar.websocket.memory import HeldBytes
from magnetar.websocket.paths import SocketRole

if TYPE_CHECKING:
    # Loaded with the first socket only.
    from magnetar.websocket.endpoint import Endpoint

SOCKETS_MAX: Final = 10_000
"""Most open WebSockets of a broker."""
SOCKETS_PER_ADDRESS_MAX: Final = 5_000
"""Most open WebSockets of one address, so that some are left for others."""


class OpenSockets:
    """The open WebSockets of one broker."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._open: set[Endpoint] = set()
        self._by_address: Counter[str] = Counter()
        self._before = dict.fromkeys(SocketRole, 0)
        """Messages of closed sockets."""
        self.refused = 0
        """Number of refused handshakes."""
        self.memory = HeldBytes()
        self.far = FarLines()
        """Connections to other brokers, for topics of theirs."""

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, peer: str) -> None:
        """Checks the limits for a new socket. `peer`: `address:port`. Raises TooManySocketsError."""
        if len(self._open) >= SOCKETS_MAX:
            raise TooManySocketsError(f"{SOCKETS_MAX} WebSockets are open")
        address = peer.rpartition(":")[0]
        if self._by_address[address] >= SOCKETS_PER_ADDRESS_MAX:
            raise TooManySocketsError(f"{SOCKETS_PER_ADDRESS_MAX} WebSockets of {address} are open")

    def add(self, endpoint: Endpoint) -> None:
        """Adds an opened socket."""
        self._open.add(endpoint)
        self._by_address[endpoint.peer.rpartition(":")[0]] += 1

    def remove(self, endpoint: Endpoint) -> None:
        """Removes a closed socket."""
        self._open.discard(endpoint)
        address = endpoint.peer.rpartition(":")[0]
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        self._before[endpoint.target.role] += endpoint.messages

    def __call__(self, out: Exposition) -> Iterable[None]:
        """Collects metrics; the broker calls it as one of its collectors."""
        for role in SocketRole:
            own = labels(("cluster", self._cluster), ("kind", role.value))
            mine = [endpoint for endpoint in self._open if endpoint.target.role is role]
            out.gauge("magnetar_websocket_connections", "Open WebSockets.", len(mine), own)
            out.counter(
                "magnetar_websocket_messages_total",
                "Messages published or delivered over WebSockets.",
                self._before[role] + sum(endpoint.messages for endpoint in mine),
                own,
            )
        out.gauge(
            "magnetar_websocket_held_bytes",
            "Bytes that WebSockets hold for large messages, beyond 64 KiB of each socket.",
            self.memory.total,
            labels(("cluster", self._cluster)),
        )
        out.counter(
            "magnetar_websocket_refused_total",
            "WebSockets whose handshake was refused.",
            self.refused,
            labels(("cluster", self._cluster)),
        )
        return ()

    def describe(self, topic: TopicName | None = None) -> dict[str, dict[str, list[object]]]:
        """Statistics by topic, in the form of Pulsar's proxy; with `topic`, of this topic only."""
        found: dict[str, dict[str, list[object]]] = {}
        for endpoint in self._open:
            for name in endpoint.target.topics:
                if topic is not None and name != topic:
                    continue
                known = found.setdefault(str(name), {"producerStats": [], "consumerStats": []})
                kind = "producerStats" if endpoint.target.role is SocketRole.PRODUCER else "consumerStats"
                known[kind].append(endpoint.describe())
        return found


def sockets_of(broker: Broker) -> OpenSockets:
    """The open WebSockets of this broker, on all its ports."""
    for collector in broker.collectors:
        if isinstance(collector, OpenSockets):
            return collector
    sockets = OpenSockets(broker.config.cluster)
    broker.collectors.append(sockets)
    return sockets

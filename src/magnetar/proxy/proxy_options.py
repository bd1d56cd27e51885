"""What the proxy is told about its work (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """Options of the binary protocol."""

    forwards_credentials: bool = False
    """Whether brokers get the credentials of clients, besides the role that they have proven here."""
    connect_s: float = 10.0
    """Seconds for a client's CONNECT."""
    broker_s: float = 10.0
    """Seconds for a connection to a broker, its handshakes included."""
    keep_alive_s: float = 30.0
    """Seconds of silence after which a client that asks questions is pinged."""
    idle_s: float = 300.0
    """Seconds without a byte in either direction after which a spliced connection is closed. Brokers and
    clients ping each other every 30 s: when there is nothing, both are gone."""
    lookups_max: int = 50_000
    """Questions that are in work at a time, over all clients."""
    links_max: int = 0
    """Sockets to brokers; 0: no limit. Each is a descriptor, as a client's is."""
    answer_bytes_max: int = 16 * MIB
    """Largest answer of a broker to a question, a list of topics."""
    buffer_bytes: int = 256 << 10
    """Bytes that wait for one side of a spliced connection before the other is not read any more."""

"""The processes of this machine that share one port for clients, as one of them knows them (pure).

A client connects to the shared port, and the kernel gives the connection to any of the processes. A look-up
answers with the name of the process that serves the topic, and with the note to connect through the address
that the client has already (`proxy_through_service_url`). The client connects once more to the shared port
and names the process in its CONNECT (`proxy_to_broker_url`). Whichever process reads that CONNECT hands the
socket to the one that it names. See docs/decisions/0037-several-processes.md.

The name of a process is `host:port` of its own address, where brokers and metrics reach it. Clients of the
shared port do not connect there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from magnetar.broker.ownership.records import BrokerUrls
from magnetar.broker.siblings.shared_scrape import SharedScrape

NOT_SHARED: Final = frozenset[int]()


def name_of(url: str) -> str:
    """`host:port` in lower case of what a client names, which may be a URL; "" for what is none."""
    try:
        return (urlsplit(url).netloc if "://" in url else url).rstrip("/").lower()
    except ValueError:
        # A bracket without its other one: no process has such a name.
        return ""


@dataclass(frozen=True, slots=True)
class Siblings:
    """Those of one process."""

    own: BrokerUrls
    """Addresses of this process."""
    places: Mapping[str, Path] = field(default_factory=dict)
    """Where each other process receives sockets, by its name."""
    ids: frozenset[str] = frozenset()
    """Broker ids of the other processes."""
    ports: frozenset[int] = NOT_SHARED
    """Ports without TLS whose clients are told to stay at the address that they have; none of them when
    clients are sent to the own ports of the processes."""

    functions: BrokerUrls | None = None
    """Addresses of the process that has the functions of all; None: it is this one, or none has them."""
    metrics: SharedScrape | None = None
    """The metrics of all processes; None: each shows its own ones only."""

    def find(self, named: str) -> Path | None:
        """Where the process that a CONNECT names receives sockets; None: it is this one, or none of them."""
        return self.places.get(name_of(named)) if named else None

    def has(self, broker_id: str) -> bool:
        """Whether a broker is one of these processes, this one too."""
        return broker_id == self.own.broker_id or broker_id in self.ids

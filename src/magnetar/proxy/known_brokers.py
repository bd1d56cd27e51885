"""The brokers that the proxy connects to (pure).

A client behind the proxy names the broker that it wants. A proxy that connected to whatever a client names
would be a way into the network behind it (CVE-2022-24280). So a name is only looked up here: the proxy
connects to addresses that a broker of the cluster has registered, or an operator has listed, with their
ports.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from magnetar.broker.ownership.records import BrokerUrls

_log = logging.getLogger("magnetar.proxy")

_NAMED: Final = re.compile(
    r"(?:(?P<scheme>pulsar|pulsar\+ssl)://)?(?P<host>[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])"
    r":(?P<port>[0-9]{1,5})/?"
)
"""Clients on the C++ library name `host:port`, others may name the URL. A text of any other form, with a
user, a path or a second host in it, names nothing."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker's address."""

    host: str
    """Name, or address without brackets."""
    port: int

    @classmethod
    def of_url(cls, url: str, scheme: str) -> BrokerAddress:
        """The address in a broker's URL. Raises ValueError, also for a URL of another scheme."""
        parts = urlsplit(url)
        if parts.scheme != scheme or not parts.hostname or not parts.port:
            raise ValueError(f"{url!r} is not {scheme}://host:port")
        return cls(parts.hostname, parts.port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class KnownBrokers:
    """The addresses of one kind, with TLS or without: only one of them is used."""

    __slots__ = ("_entries", "_known", "_next", "_tls", "_web")

    def __init__(self, *, tls: bool) -> None:
        """`tls`: whether the proxy connects to the brokers' TLS ports."""
        self._tls = tls
        self._known: dict[str, BrokerAddress] = {}
        """All addresses of all brokers, by their name in lower case."""
        self._entries: tuple[BrokerAddress, ...] = ()
        """One address for each broker."""
        self._web: tuple[str, ...] = ()
        self._next = 0

    def __len__(self) -> int:
        """Brokers that can be asked."""
        return len(self._entries)

    @property
    def tls(self) -> bool:
        """Whether these are TLS ports."""
        return self._tls

    def replace(self, brokers: Iterable[BrokerUrls]) -> None:
        """Takes the brokers that there are now. One without an address of the right kind is left out, and so
        is an address that is none: one strange record must not keep the others from being known."""
        known: dict[str, BrokerAddress] = {}
        entries: list[BrokerAddress] = []
        web: list[str] = []
        for broker in brokers:
            # What several processes share: brokers of other machines redirect look-ups there.
            addresses = (broker.addresses, *broker.listeners.values(), broker.shared)
            urls = [each.tls if self._tls else each.plain for each in addresses]
            targets = list(filter(None, map(self._address, filter(None, urls))))
            entries += targets[:1]
            known |= {str(target).lower(): target for target in targets}
            own = broker.addresses
            if url := (own.https if self._tls else own.http):
                web.append(url)
        self._known, self._entries, self._web = known, tuple(entries), tuple(web)

    def _address(self, url: str) -> BrokerAddress | None:
        try:
            return BrokerAddress.of_url(url, "pulsar+ssl" if self._tls else "pulsar")
        except ValueError as error:
            _log.warning("an address of a broker is left out: %s", error)
            return None

    def find(self, named: str) -> BrokerAddress | None:
        """The broker that a client names, as `host:port` or as URL; None: no broker of the cluster is called
        so."""
        found = _NAMED.fullmatch(named)
        if found is None:
            return None
        return self._known.get(f"{found['host']}:{int(found['port'])}".lower())

    def pick(self, tried: Sequence[BrokerAddress] = ()) -> BrokerAddress | None:
        """A broker to ask, each in turn; not one of `tried`. None: there is no other."""
        for _ in range(len(self._entries)):
            self._next = (self._next + 1) % len(self._entries)
            target = self._entries[self._next]
            if target not in tried:
                return target
        return None

    def web(self) -> tuple[str, ...]:
        """URLs of the brokers' admin APIs, of the same kind."""
        return self._web

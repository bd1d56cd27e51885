"""What brokers tell each other through the metadata store, as JSON (pure).

| Key | Value | Written by |
|---|---|---|
| `/namespace/{tenant}/{namespace}/{bundle}` | owner's URLs, ephemeral (NamespaceEphemeralData) | the owner |
| `/loadbalance/brokers/{broker}` | report, ephemeral (LocalBrokerData) | the broker |
| `/magnetar/moves/{tenant}/{namespace}/{bundle}` | `{"to"}`: the new owner | the requesting broker |
| `/magnetar/drains/{broker}` | empty: the broker is to own nothing | operators |

Fields that are not known are passed over. Source: Pulsar's NamespaceEphemeralData and LocalBrokerData.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from magnetar.base.names import InvalidNameError
from magnetar.broker.listeners import NOWHERE, Addresses, unknown_listener
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.bundle_load import NUMBERS, BundleLoad

NAMESPACES: Final = "/namespace"
MOVES: Final = "/magnetar/moves"
DRAINS: Final = "/magnetar/drains"

_OF_LISTENER: Final = ("brokerServiceUrl", "brokerServiceUrlTls", "brokerHttpUrl", "brokerHttpsUrl")
BUNDLES_TOLD_MAX: Final = 100
"""Bundles whose load is in a report: 20 KB of JSON, which every broker reads every few seconds."""
_KBIT_BYTES: Final = 125
"""Pulsar tells bandwidths in kbit/s."""
_BEYOND: Final = 1e18
"""Nothing that a report counts is so large."""

LOAD_MANAGER: Final = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
"""Pulsar sends every look-up to brokers whose class of load manager is that of the newest broker."""


def owner_path(bundle: Bundle) -> str:
    """Where the owner of a bundle stands."""
    return f"{NAMESPACES}/{bundle}"


def move_path(bundle: Bundle) -> str:
    """Where it stands that a bundle is to leave its owner."""
    return f"{MOVES}/{bundle}"


def drain_path(broker_id: str) -> str:
    """Where it stands that a broker is to own nothing."""
    return f"{DRAINS}/{broker_id}"


@dataclass(frozen=True, slots=True)
class BrokerUrls:
    """How a broker is reached."""

    addresses: Addresses
    """Addresses of the listener for clients that name none."""
    listeners: Mapping[str, Addresses] = field(default_factory=dict)
    shared: Addresses = NOWHERE
    """Addresses that the broker shares with other processes of its machine; without them: NOWHERE. Clients
    that connect there are led to the right process."""

    @property
    def broker_id(self) -> str:
        """`host:port` of its admin API, by which it is known."""
        return urlsplit(self.addresses.http or self.addresses.https).netloc

    def of_listener(self, name: str) -> Addresses:
        """The addresses that a client is told. Raises ServiceNotReadyError for an unknown listener."""
        return self._told(name, self.addresses)

    def shared_of(self, name: str) -> Addresses:
        """As `of_listener`, of the port that it shares with other processes. Where it does, advertised
        listeners are addresses of that port."""
        return self._told(name, self.shared)

    def _told(self, name: str, own: Addresses) -> Addresses:
        if not name:
            return own
        if name not in self.listeners:
            raise unknown_listener(name, self.listeners)
        told = self.listeners[name]
        return Addresses(told.plain, told.tls, told.http or own.http, told.https or own.https)

    def encode(self) -> bytes:
        """As the record of an owner."""
        return _encode({**self._urls("nativeUrl", "httpUrl"), "disabled": False})

    def _urls(self, plain: str, http: str) -> dict[str, object]:
        at = self.addresses
        return {
            plain: at.plain or None,
            f"{plain}Tls": at.tls or None,
            http: at.http or None,
            f"{http}Tls": at.https or None,
            "advertisedListeners": {name: _listener(each) for name, each in self.listeners.items()},
            **({"sharedAddresses": _listener(self.shared)} if self.shared != NOWHERE else {}),
        }

    @classmethod
    def decode(cls, data: bytes) -> BrokerUrls:
        """From the record of an owner. Raises ValueError."""
        return cls._of(_document(data), "nativeUrl", "httpUrl")

    @classmethod
    def _of(cls, document: Mapping[str, object], plain: str, http: str) -> BrokerUrls:
        told = document.get("advertisedListeners") or {}
        if not isinstance(told, dict) or not all(isinstance(each, dict) for each in told.values()):
            raise ValueError("advertisedListeners is an object of objects")
        shared = document.get("sharedAddresses") or {}
        if not isinstance(shared, dict):
            raise ValueError("sharedAddresses is an object")
        own = (plain, f"{plain}Tls", http, f"{http}Tls")
        found = cls(
            Addresses(*(_url(document, name) for name in own)),
            {name: Addresses(*(_url(each, field) for field in _OF_LISTENER)) for name, each in told.items()},
            Addresses(*(_url(shared, field) for field in _OF_LISTENER)),
        )
        if not found.broker_id:
            raise ValueError(f"without {http} and {http}Tls the record names no broker")
        return found


@dataclass(frozen=True, slots=True)
class Load:
    """What a broker has to do."""

    bundles: int = 0
    topics: int = 0
    producers: int = 0
    consumers: int = 0
    rate_in: float = 0.0
    """Messages per second from producers."""
    rate_out: float = 0.0
    """Messages per second to consumers."""
    bytes_in: float = 0.0
    """Bytes per second."""
    bytes_out: float = 0.0
    """Bytes per second."""
    cpu_percent: float = 0.0
    """Percent of one core, which is what a broker can use."""
    waited_percent: float = 0.0
    """Percent of the time in which it was ready to run and waited for a processor, which others had."""
    memory_mib: float = 0.0
    """Resident memory of the process."""
    memory_limit_mib: float = 0.0
    """Memory of the machine; 0: not known."""
    of_bundles: Mapping[Bundle, BundleLoad] = field(default_factory=dict)
    """Bundles of the broker with the most to do, `BUNDLES_TOLD_MAX` at most; those that no client uses are
    left out."""

    @property
    def wanted_percent(self) -> float:
        """Percent of one core that it would use if the machine had nothing else to do."""
        return self.cpu_percent + self.waited_percent


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """A broker that is there."""

    urls: BrokerUrls
    load: Load = Load()
    draining: bool = False
    """Whether it takes no bundles since it is being stopped. What operators drain is not in the report: it
    would be late when they take that back."""
    started_ms: int = 0
    """Unix milliseconds."""
    version: str = ""
    socket: str = ""
    """Names the listening socket of its admin API, which one process at a time can have; "": not told."""
    outages: int = 0
    """How often it lost contact with the metadata service since its start."""
    reported_ms: int = 0
    """When it was written, by the clock of the broker, Unix milliseconds; another one in each report."""

    @property
    def broker_id(self) -> str:
        """See `BrokerUrls`."""
        return self.urls.broker_id

    def encode(self) -> bytes:
        """As the record of a broker."""
        load = self.load
        return _encode(
            {
                **self.urls._urls("pulsarServiceUrl", "webServiceUrl"),
                "persistentTopicsEnabled": True,
                "nonPersistentTopicsEnabled": True,
                "cpu": {"usage": round(load.cpu_percent, 1), "limit": 100.0},
                "cpuWaited": round(load.waited_percent, 1),
                "memory": {"usage": round(load.memory_mib, 1), "limit": round(load.memory_limit_mib, 1)},
                "bandwidthIn": {"usage": round(load.bytes_in / _KBIT_BYTES, 1), "limit": 0.0},
                "bandwidthOut": {"usage": round(load.bytes_out / _KBIT_BYTES, 1), "limit": 0.0},
                "msgThroughputIn": load.bytes_in,
                "msgThroughputOut": load.bytes_out,
                "msgRateIn": load.rate_in,
                "msgRateOut": load.rate_out,
                "numTopics": load.topics,
                "numBundles": load.bundles,
                "numConsumers": load.consumers,
                "numProducers": load.producers,
                "lastUpdate": self.reported_ms,
                "lastStats": {str(bundle): each.document() for bundle, each in load.of_bundles.items()},
                "bundles": [str(bundle) for bundle in load.of_bundles],
                "brokerVersionString": self.version,
                "protocols": {},
                "loadManagerClassName": LOAD_MANAGER,
                "startTimestamp": self.started_ms,
                "loadReportType": "LocalBrokerData",
                "draining": self.draining,
                "listeningSocket": self.socket,
                "metadataOutages": self.outages,
            }
        )

    @staticmethod
    def is_pulsars(data: bytes) -> bool:
        """Whether a broker of Pulsar's wrote the record; also when it cannot be read. Ours say where they
        listen."""
        try:
            return "listeningSocket" not in _document(data)
        except ValueError:
            return True

    @classmethod
    def decode(cls, data: bytes) -> BrokerReport:
        """Raises ValueError."""
        document = _document(data)
        cpu, memory = document.get("cpu"), document.get("memory")
        urls = BrokerUrls._of(document, "pulsarServiceUrl", "webServiceUrl")
        if not (urls.addresses.plain or urls.addresses.tls):
            raise ValueError("without pulsarServiceUrl and pulsarServiceUrlTls no client reaches it")
        return cls(
            urls,
            Load(
                bundles=int(_number(document, "numBundles")),
                topics=int(_number(document, "numTopics")),
                producers=int(_number(document, "numProducers")),
                consumers=int(_number(document, "numConsumers")),
                rate_in=_number(document, "msgRateIn"),
                rate_out=_number(document, "msgRateOut"),
                bytes_in=_number(document, "msgThroughputIn"),
                bytes_out=_number(document, "msgThroughputOut"),
                cpu_percent=_number(cpu, "usage") if isinstance(cpu, dict) else 0.0,
                waited_percent=_number(document, "cpuWaited"),
                memory_mib=_number(memory, "usage") if isinstance(memory, dict) else 0.0,
                memory_limit_mib=_number(memory, "limit") if isinstance(memory, dict) else 0.0,
                of_bundles=_bundles(document.get("lastStats") or {}),
            ),
            draining=document.get("draining") is True,
            started_ms=int(_number(document, "startTimestamp")),
            version=str(document.get("brokerVersionString") or ""),
            socket=str(document.get("listeningSocket") or ""),
            outages=int(_number(document, "metadataOutages")),
            reported_ms=int(_number(document, "lastUpdate")),
        )


def _bundles(told: object) -> dict[Bundle, BundleLoad]:
    """Loads of bundles; what names none is passed over. Raises ValueError."""
    if not isinstance(told, dict) or not all(isinstance(each, dict) for each in told.values()):
        raise ValueError("lastStats is an object of objects")
    found: dict[Bundle, BundleLoad] = {}
    for text, each in told.items():
        with contextlib.suppress(InvalidNameError, ValueError):  # a later version tells more
            found[Bundle.parse(text)] = BundleLoad.of({name: _number(each, name) for name in NUMBERS})
    return found


def _listener(at: Addresses) -> dict[str, str | None]:
    urls = (at.plain, at.tls, at.http, at.https)
    return {name: url or None for name, url in zip(_OF_LISTENER, urls, strict=True)}


def encode_move(to: str) -> bytes:
    """`to`: id of the broker that is to have the bundle; "": the next one that is asked for it."""
    return _encode({"to": to})


def decode_move(data: bytes) -> str:
    """See `encode_move`. Raises ValueError."""
    return str(_document(data).get("to") or "")


def _document(data: bytes) -> dict[str, object]:
    try:
        document = json.loads(data)
    except RecursionError as error:
        raise ValueError("a record is not nested so deeply") from error
    if not isinstance(document, dict):
        raise ValueError("a record is a JSON object")
    return document


def _url(document: Mapping[str, object], name: str) -> str:
    """ "": there is none. Raises ValueError, also for an address that nothing can connect to."""
    url = document.get(name)
    if url is None:
        return ""
    if not isinstance(url, str):
        raise ValueError(f"{name} is a text")
    _ = urlsplit(url).port  # reads host and port
    return url


def _number(document: Mapping[str, object], name: str) -> float:
    """0 where there is none, and below 0, as what was not measured is in Pulsar; finite, as 1e999 in JSON is
    not. Raises ValueError."""
    number = document.get(name) or 0
    if not isinstance(number, int | float) or not abs(number) < _BEYOND:
        raise ValueError(f"{name} is a number below {_BEYOND:g}")
    return max(0.0, float(number))


def _encode(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()

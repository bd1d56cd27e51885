"""The addresses of a broker for lookups.

Without advertised listeners: the host that the client already reached, or the advertised one, and the
listening ports. With them a client gets the addresses of the listener that it names, or of the internal one.
Source: Pulsar's multiple advertised listeners (PIP-61, PIP-95).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from magnetar.broker.errors import ServiceNotReadyError

_FIELDS: Final = {"pulsar": "plain", "pulsar+ssl": "tls", "http": "http", "https": "https"}


@dataclass(frozen=True, slots=True)
class Addresses:
    """URLs of one broker; "": it is not reached that way."""

    plain: str = ""
    """`pulsar://host:port`"""
    tls: str = ""
    """`pulsar+ssl://host:port`"""
    http: str = ""
    https: str = ""


NOWHERE: Final = Addresses()


@dataclass(frozen=True, slots=True)
class Listeners:
    """The listening ports, 0: there is none; and the advertised listeners."""

    plain_port: int = 0
    """0 also before it is known: then the port of the asking connection is used."""
    tls_port: int = 0
    http_port: int = 0
    https_port: int = 0
    named: Mapping[str, Addresses] = field(default_factory=dict)
    internal: str = ""
    """Key in `named` of the listener for clients that name none; "": they get the ports."""

    def addresses(self, host: str, own_port: int = 0, *, listener: str = "") -> Addresses:
        """The addresses for a client that reached this broker by `host`.

        `own_port`: of the asking connection. Raises ServiceNotReadyError when no listener has the name
        `listener`.
        """
        name = listener or self.internal
        if listener and listener not in self.named:
            raise unknown_listener(listener, self.named)
        own = Addresses(
            plain=f"pulsar://{host}:{self.plain_port or own_port}",
            tls=f"pulsar+ssl://{host}:{self.tls_port}" if self.tls_port else "",
            http=f"http://{host}:{self.http_port}" if self.http_port else "",
            https=f"https://{host}:{self.https_port}" if self.https_port else "",
        )
        if not name:
            return own
        told = self.named[name]
        # Listeners are mostly given for clients of the binary protocol alone.
        return Addresses(told.plain, told.tls, told.http or own.http, told.https or own.https)


def unknown_listener(name: str, named: Mapping[str, Addresses]) -> ServiceNotReadyError:
    """For a client that names a listener which the broker does not have."""
    known = ", ".join(sorted(named)) or "none"
    # The C++ client tells by this code and these words that it cannot connect; others try again.
    return ServiceNotReadyError(f"the broker do not have {name} listener", remedy=f"known: {known}")


def parse_listeners(text: str) -> dict[str, Addresses]:
    """Listeners by name, from `name:scheme://host:port,...`; a name may occur once for each scheme.

    Raises ValueError, whose text names the error.
    """
    found: dict[str, dict[str, str]] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, url = part.partition(":")
        parts = urlsplit(url)
        kind = _FIELDS.get(parts.scheme)
        if not name.strip() or kind is None or not parts.hostname or _port(parts.netloc) is None:
            raise ValueError(
                f"{part!r} is not name:scheme://host:port, with a scheme of {', '.join(_FIELDS)}"
            )
        listener = found.setdefault(name.strip(), {})
        if kind in listener:
            raise ValueError(f"listener {name.strip()} has two addresses for {parts.scheme}")
        listener[kind] = f"{parts.scheme}://{parts.netloc}"
    return {name: Addresses(**urls) for name, urls in found.items()}


def _port(netloc: str) -> int | None:
    try:
        return urlsplit(f"//{netloc}").port
    except ValueError:
        return None

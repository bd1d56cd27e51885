"""What sessions and sockets need of the proxy."""

from __future__ import annotations

from typing import Protocol

from magnetar.auth.identity import Credentials
from magnetar.base.clock import Clock
from magnetar.broker.session.greetings import Greetings
from magnetar.proxy.figures import ProxyFigures
from magnetar.proxy.known_brokers import KnownBrokers
from magnetar.proxy.proxy_options import ProxyOptions


class ProxyPort(Protocol):
    """See the module's text."""

    options: ProxyOptions
    targets: KnownBrokers
    clock: Clock
    credentials: Credentials | None
    """With which the proxy comes to brokers."""
    greetings: Greetings
    figures: ProxyFigures

    @property
    def authenticates(self) -> bool:
        """Whether clients must show credentials here."""

    def take_place(self) -> bool:
        """Counts one more question; returns False when there are too many."""

    def give_place_back(self) -> None:
        """A question is answered."""

    def take_link(self) -> bool:
        """Counts one more socket to a broker; returns False when there are too many."""

    def give_link_back(self) -> None:
        """A socket to a broker is closed."""

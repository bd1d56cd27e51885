"""The number of connections to other brokers that a broker has for its WebSockets (pure)."""

from __future__ import annotations

from typing import Final

from magnetar.websocket.errors import RefusedByBrokerError
from magnetar.wire import pulsar_pb2 as pb

FAR_MAX: Final = 5_000
"""Most connections to other brokers, of all WebSockets of a broker together."""


class FarLines:
    """Counts the connections of all WebSockets."""

    def __init__(self) -> None:
        self.open = 0

    def take(self) -> None:
        """Takes a place. Raises RefusedByBrokerError."""
        if self.open >= FAR_MAX:
            raise unreachable(
                f"{FAR_MAX} connections to other brokers are open: connect to the topic's broker"
            )
        self.open += 1

    def give_back(self) -> None:
        """Frees a place."""
        assert self.open > 0, "it was taken"
        self.open -= 1


def unreachable(reason: str) -> RefusedByBrokerError:
    """The error of a topic whose broker cannot be asked now; the same request may succeed a little later."""
    return RefusedByBrokerError(pb.ServiceNotReady, reason)

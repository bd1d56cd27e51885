"""What a load generator needs of a protocol, so that the same loops drive every broker."""

from __future__ import annotations

import socket as sockets
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Template(Protocol):
    """One request that publishes an entry, and how copies of it are told apart."""

    @property
    def frame(self) -> bytes:
        """The request; its length is that of every copy."""

    @property
    def messages_per_entry(self) -> int:
        """Messages in one request."""

    @property
    def payload_bytes(self) -> int:
        """Payload of the application in one request, without any overhead."""

    def renumber(self, frames: npt.NDArray[np.uint8], first_sequence_id: int, publish_time_ms: int) -> None:
        """Make the rows of `frames`, copies of `frame`, the entries from `first_sequence_id` on."""


class Lane(Protocol):
    """One producer on a connected socket that does not block."""

    @property
    def socket(self) -> sockets.socket:
        """Set not to block."""

    @property
    def template(self) -> Template:
        """What it publishes."""

    @property
    def window_messages_max(self) -> int:
        """More messages than this must not wait for receipts: the broker would refuse some."""

    @property
    def acknowledged(self) -> int:
        """Entries whose receipt came, complete and in order."""

    def feed(self, data: memoryview) -> int:
        """Check the complete answers at the start of `data`; the bytes that they were.

        Raises BrokerAnswerError for an error, a missing receipt or one out of order.
        """

    def pending(self) -> bytes:
        """What was read before the load and not used; asked for once."""


class Counter(Protocol):
    """One consumer on a socket that does not block; counts and checks what it gets."""

    @property
    def socket(self) -> sockets.socket:
        """Set not to block."""

    @property
    def entries_received(self) -> int:
        """Entries that arrived, complete and in order."""

    @property
    def checks(self) -> int:
        """Entries whose checksum was verified."""

    def start(self, template: Template) -> None:
        """Ask for entries like those of `template`, from the first on."""

    def receive(self) -> None:
        """Read once, check what came, ask for more."""


class Driver(Protocol):
    """A broker behind its protocol."""

    def lane(self, topic: str, *, payload_bytes: int, messages_per_entry: int, producer_id: int = 1) -> Lane:
        """A producer on a connection of its own."""

    def keep(self, topic: str) -> None:
        """Make sure that what is published from now on stays until it was read."""

    def consumer(self, topic: str, *, queue_messages: int, backlog: bool) -> Counter:
        """A consumer on a connection of its own.

        `backlog`: reads from the first message and acknowledges nothing; else it begins where the topic
        ends now and acknowledges what it got, as an application does.
        """

"""A producer that is attached to a topic, and what the topic asks of its connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import Position, ProducerId, RequestId
from magnetar.broker.access.access_state import AccessMode
from magnetar.wire import pulsar_pb2 as pb


class ProducerConnection(Protocol):
    """The part of a producer's connection that a topic uses."""

    def receipts(
        self,
        producer: Producer,
        sequence_ids: list[int],
        highest_ids: list[int] | None,
        position: Position | None,
    ) -> None:
        """Entries from `position` on are durable; None: they were duplicates."""

    def unstored_receipts(
        self, producer: Producer, sequence_ids: list[int], highest_ids: list[int] | None
    ) -> None:
        """Messages of a topic that stores nothing were taken."""

    def send_errors(
        self, producer: Producer, sequence_ids: list[int], code: pb.ServerError, message: str
    ) -> None: ...

    def published(self, size_bytes: int) -> None:
        """This many bytes of this connection are no longer in flight."""

    def throttle(self, reason: object) -> None:
        """Reads no more from this client until `unthrottle` with the same reason."""

    def unthrottle(self, reason: object) -> None:
        """If nothing else forbids it, the client is read again."""

    def producer_detached(self, producer: Producer) -> None:
        """The broker detaches the producer (unload, deletion, fencing): the client looks up again."""

    def producer_ready(self, producer: Producer) -> None:
        """A producer that was not ready when it was attached may publish now."""

    def producer_refused(self, producer: Producer, error: MagnetarError) -> None:
        """A producer that was not ready when it was attached is not attached any more."""


class OwnConnection:
    """The connection of a producer within the process, on a persistent topic: it has no reads to pause and no
    budget."""

    def unstored_receipts(
        self, producer: Producer, sequence_ids: list[int], highest_ids: list[int] | None
    ) -> None:
        """See `ProducerConnection`: of topics of the other kind."""

    def published(self, size_bytes: int) -> None:
        """See `ProducerConnection`."""

    def throttle(self, reason: object) -> None:
        """See `ProducerConnection`."""

    def unthrottle(self, reason: object) -> None:
        """See `ProducerConnection`."""

    def producer_ready(self, producer: Producer) -> None:
        """See `ProducerConnection`: a shared producer is ready at once."""


_NO_REQUEST: Final = RequestId(0)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Producer:
    """A producer that is attached to a topic."""

    producer_id: ProducerId
    """Chosen by the client, unique on its connection."""
    name: str
    connection: ProducerConnection
    epoch: int = 0
    """Raised by the client at each reconnection of the same producer."""
    mode: AccessMode = AccessMode.SHARED
    topic_epoch: int | None = None
    """Given by the client: under which it held the topic before; once it is ready: the current one."""
    ready: bool = False
    """Whether it may publish; kept by the topic."""
    request_id: RequestId = _NO_REQUEST
    """The client's request that is to be answered."""
    user_named: bool = False
    encrypted: bool = False
    """Whether the client claims to encrypt its messages."""
    schema_version: bytes = b""
    client_address: str = ""
    client_version: str = ""
    connected_ms: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    messages_in: int = 0
    bytes_in: int = 0

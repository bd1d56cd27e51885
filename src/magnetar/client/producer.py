"""Publishes ready-made entries to one topic or partition. Blocking, pipelined.

Entries are sent in order; receipts are collected while later entries are sent. The producer never repeats an
entry: when the connection breaks, the caller decides about entries without a receipt.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from magnetar.base.closing import Closing
from magnetar.base.errors import ClientError
from magnetar.base.ids import Position, ProducerId
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.errors import UnreachableError
from magnetar.client.retry import Retry
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import encode_send
from magnetar.wire.commands import PONG
from magnetar.wire.events import TxnBits

_Type = pb.BaseCommand.Type
_PRODUCER_ID: Final = ProducerId(1)

_PENDING_BYTES_MAX: Final = 8 << 20
"""Most bytes sent without a receipt; bounds the memory that the broker needs for this producer."""
_PENDING_ENTRIES_MAX: Final = 1000
_WRITE_BYTES: Final = 256 << 10
"""Bytes that are collected before a write to the socket."""


class SendFailedError(ClientError):
    """The broker refused an entry or closed the producer. Entries without a receipt may be stored or not.

    `code`: a number of the protocol's ServerError; None: it told none."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Producer(Closing):
    """One producer with its own connection."""

    def __init__(
        self,
        client: Client,
        topic: TopicName,
        *,
        name: str = "",
        properties: dict[str, str] | None = None,
        schema: pb.Schema | None = None,
    ) -> None:
        """Opens the producer.

        Args:
            name: unique on the topic; empty: the broker chooses one. While another producer has the name, the
                call waits, up to the client's retry limit.
            schema: registered with the topic; the broker refuses an incompatible one.

        Raises RefusedError, UnreachableError, RequestTimeoutError.
        """
        self.topic = topic
        self.name = name
        self.last_sequence_id = -1
        """Highest sequence id that the broker has stored for this producer name; -1 when none."""
        self.schema_version = b""
        self._pending: deque[tuple[int, int]] = deque()
        self._pending_bytes = 0
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._positions: list[Position | None] = []
        retry = Retry(client.options.retry_timeout_s)
        while True:
            try:
                self._connection = client.connect_to(topic)
                self._open(name, properties or {}, schema)
                return
            except ClientError as error:
                retry.pause_or_raise(error)

    def _open(self, name: str, properties: dict[str, str], schema: pb.Schema | None) -> None:
        session = self._connection.session
        request_id = session.next_request_id()
        body = pb.CommandProducer(
            topic=str(self.topic),
            producer_id=_PRODUCER_ID,
            request_id=request_id,
            user_provided_producer_name=bool(name),
            metadata=[pb.KeyValue(key=key, value=value) for key, value in properties.items()],
        )
        if name:
            body.producer_name = name
        if schema is not None:
            body.schema.CopyFrom(schema)
        try:
            what = f"producer {name!r} on {self.topic}" if name else f"producer on {self.topic}"
            answer = self._connection.call(
                pb.BaseCommand(type=_Type.PRODUCER, producer=body), request_id, what
            ).producer_success
        except BaseException:
            self._connection.close()
            raise
        self.name = answer.producer_name
        self.last_sequence_id = answer.last_sequence_id
        self.schema_version = answer.schema_version

    @property
    def message_bytes_max(self) -> int:
        """Most bytes of metadata and payload together that the broker accepts in one entry."""
        return self._connection.session.message_bytes_max

    def send(
        self,
        sequence_id: int,
        entry: bytes,
        count: int = 1,
        *,
        highest: int | None = None,
        txn: TxnBits | None = None,
    ) -> None:
        """Sends an entry of `count` messages. `sequence_id`: that of the first message. `highest`: that of
        the last one; by default the others follow the first. `txn`: the transaction of the entry; the entry's
        metadata must name it too.

        Waits for receipts only while too many bytes lack one. Raises SendFailedError, UnreachableError.
        """
        if highest is None and count > 1:
            highest = sequence_id + count - 1
        frame = encode_send(_PRODUCER_ID, sequence_id, count, entry, highest, txn=txn)
        self._out.append(frame)
        self._out_bytes += len(frame)
        self._pending.append((sequence_id, len(frame)))
        self._pending_bytes += len(frame)
        if self._out_bytes >= _WRITE_BYTES:
            self._write()
        if self._pending_bytes > _PENDING_BYTES_MAX or len(self._pending) > _PENDING_ENTRIES_MAX:
            self._write()
            self._await(_PENDING_BYTES_MAX // 2, _PENDING_ENTRIES_MAX // 2)

    def flush(self) -> list[Position | None]:
        """Waits until all sent entries are durable.

        Returns the positions of all entries sent since the last call, in order; None for a duplicate that the
        broker did not store. Raises SendFailedError, UnreachableError, RequestTimeoutError.
        """
        self._write()
        self._await(0, 0)
        positions = self._positions
        self._positions = []
        return positions

    def advance(self) -> int:
        """Sends the collected entries and takes the receipts that have come, without waiting.

        Returns the number of entries with a receipt; `flush` no longer returns their positions. For callers
        that measure the time of receipts. Raises SendFailedError, UnreachableError.
        """
        self._write()
        while self._connection.has_data():
            self._connection.read(0)
        self._take_receipts()
        count = len(self._positions)
        self._positions.clear()
        return count

    def fileno(self) -> int:
        """Descriptor of the socket, for `select`; it is readable when an answer has come."""
        return self._connection.fileno()

    def keep(self) -> None:
        """Tells the broker that this side is there, while nothing is sent. Raises UnreachableError."""
        self._connection.write(PONG)

    def _write(self) -> None:
        if self._out:
            frames = self._out
            self._out = []
            self._out_bytes = 0
            self._connection.write(frames)

    def _await(self, bytes_max: int, entries_max: int) -> None:
        def poll() -> bool | None:
            self._take_receipts()
            return (self._pending_bytes <= bytes_max and len(self._pending) <= entries_max) or None

        self._connection.wait(poll, f"entries for {self.topic}")

    def _take_receipts(self) -> None:
        session = self._connection.session
        failed = session.send_error(_PRODUCER_ID)
        if failed is not None:
            name = pb.ServerError.Name(failed.error)
            raise SendFailedError(
                f"{self.topic} refused message {failed.sequence_id} of {self.name} with {name}:"
                f" {failed.message}",
                failed.error,
            )
        if session.is_producer_closed(_PRODUCER_ID):
            raise UnreachableError(str(self._connection.url), f"the broker let go of {self.topic}")
        run = session.receipts(_PRODUCER_ID)
        if run is None:
            return
        for sequence_id, ledger_id, entry_id in zip(
            run.sequence_ids, run.ledger_ids, run.entry_ids, strict=True
        ):
            if not self._pending or self._pending[0][0] != sequence_id:
                raise SendFailedError(f"{self.topic}: receipt for message {sequence_id}, which is not due")
            self._pending_bytes -= self._pending.popleft()[1]
            self._positions.append(None if ledger_id < 0 else Position(ledger_id, entry_id))

    def close(self) -> None:
        """Ends the producer. Entries without a receipt may be stored or not: call `flush` before."""
        self._connection.close()

"""Reads entries of one topic in bulk, without a durable cursor. Blocking.

`EntryReader` is one reader on one connection. `read_range` reads an exact range, and continues after a lost
connection where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final
from uuid import uuid4

from magnetar.base.closing import Closing
from magnetar.base.errors import ClientError
from magnetar.base.ids import EARLIEST, LATEST, ConsumerId, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.deliveries import DeliveryReader, EntryColumns
from magnetar.client.errors import DataLossError, RequestTimeoutError, UnreachableError
from magnetar.client.retry import Retry
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.commands import PING, message_id_data
from magnetar.wire.frames import position_of

_Type = pb.BaseCommand.Type

_CONSUMER_ID: Final = ConsumerId(1)

_PERMITS: Final = 1 << 28
"""Permits of a reader: practically unlimited. The connection has a single reader, which stops reading when it
has enough, so that TCP slows the broker down. Permits count messages, whose number is unknown before batches
are opened."""

_QUIET_S: Final = 0.05
"""Seconds without an entry after which the reader first asks the broker whether more entries exist: a range
may end in entries that no reader gets, like those of aborted transactions."""
_STALL_S: Final = 1.0
"""The same when more of them exist: the broker is slow."""


class EntryReader(Closing):
    """One reader with its own connection."""

    def __init__(
        self, client: Client, topic: TopicName, start: Position | None, *, permits: int = _PERMITS
    ) -> None:
        """Opens the reader.

        Args:
            start: first entry to read, or EARLIEST or LATEST; None: read nothing, the reader only serves
                `last_position`.
            permits: number of messages that the broker may send.

        Raises RefusedError, UnreachableError, RequestTimeoutError.
        """
        self.topic = topic
        self._connection = client.connect_to(topic)
        self._deliveries = DeliveryReader(str(topic))
        try:
            self._subscribe(LATEST if start is None else start)
            if start is not None:
                self._connection.write(encode_flow(_CONSUMER_ID, permits))
        except BaseException:
            self.close()
            raise

    def _subscribe(self, start: Position) -> None:
        session = self._connection.session
        session.deliver_to(_CONSUMER_ID, self._deliveries)
        request_id = session.next_request_id()
        body = pb.CommandSubscribe(
            topic=str(self.topic),
            subscription=f"reader-{uuid4().hex[:12]}",
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=_CONSUMER_ID,
            request_id=request_id,
            durable=False,
            start_message_id=message_id_data(start),
            initialPosition=pb.CommandSubscribe.Earliest,
            force_topic_creation=False,
        )
        self._connection.call(
            pb.BaseCommand(type=_Type.SUBSCRIBE, subscribe=body), request_id, f"reader on {self.topic}"
        )

    def read(self, timeout_s: float) -> EntryColumns:
        """The entries that have arrived; waits up to `timeout_s` seconds for the first. Empty when none came.

        Raises UnreachableError, PayloadError.
        """
        deadline = time.monotonic() + timeout_s
        while not len(self._deliveries.columns):
            if self._connection.session.is_consumer_closed(_CONSUMER_ID):
                raise UnreachableError(str(self._connection.url), f"the broker let go of {self.topic}")
            left = deadline - time.monotonic()
            if left <= 0 or not self._connection.read(left):
                break
        return self._deliveries.fetch()

    def last_position(self) -> Position | None:
        """Position of the topic's last message; None when it is empty."""
        request_id = self._connection.session.next_request_id()
        body = pb.CommandGetLastMessageId(consumer_id=_CONSUMER_ID, request_id=request_id)
        answer = self._connection.call(
            pb.BaseCommand(type=_Type.GET_LAST_MESSAGE_ID, getLastMessageId=body),
            request_id,
            f"last message of {self.topic}",
        )
        position = position_of(answer.getLastMessageIdResponse.last_message_id)
        return None if position.entry_id < 0 else position

    def ping(self) -> None:
        """Sends a PING, which keeps an idle connection open."""
        self._connection.write(PING)

    def close(self) -> None:
        """Ends the reader; may be called twice."""
        self._connection.close()


def read_range(
    client: Client, topic: TopicName, start: Position, end: Position, *, bytes_target: int = 1 << 20
) -> Iterator[EntryColumns]:
    """Every entry from `start` on and before `end`, in order, each once.

    Args:
        end: the position after an entry that existed when the range was planned: the ledger of the last
            entry, and its number plus one.
        bytes_target: bytes that are collected into one result.

    A lost connection is opened again, until the client's retry limit has passed without progress.
    Raises DataLossError when the topic ends before the range does, RefusedError, PayloadError.
    """
    retry = Retry(client.options.retry_timeout_s)
    position = start
    while position < end:
        try:
            with EntryReader(client, topic, position) as reader:
                for columns in _read_until(
                    reader, position, end, bytes_target, client.options.request_timeout_s
                ):
                    retry = Retry(client.options.retry_timeout_s)
                    last = columns.position(len(columns) - 1)
                    position = Position(last.ledger_id, last.entry_id + 1)
                    yield columns
                return
        except ClientError as error:
            retry.pause_or_raise(error)


def _read_until(
    reader: EntryReader, start: Position, end: Position, bytes_target: int, timeout_s: float
) -> Iterator[EntryColumns]:
    """Yields the range from one reader; ends when no entry of it is left."""
    position = start
    deadline = time.monotonic() + timeout_s
    patience_s = _QUIET_S
    while position < end:
        columns = reader.read(patience_s)
        patience_s = _QUIET_S
        # Waiting for more delays no message, as the end is known, and decoding is much faster in large
        # pieces.
        while 0 < columns.size_bytes < bytes_target and not _reaches(columns, end):
            more = reader.read(_QUIET_S)
            if not len(more):
                # It has been quiet already: where no entry has come meanwhile, the broker is asked at once.
                patience_s = 0.0
                break
            columns.extend(more)
        if not len(columns):
            if _is_exhausted(reader, position, end):
                return
            if time.monotonic() > deadline:
                raise RequestTimeoutError(str(reader.topic), f"with entries {position} to {end}", timeout_s)
            patience_s = _STALL_S
            continue
        deadline = time.monotonic() + timeout_s
        first = _first_at(columns, position)
        stop = _first_at(columns, end)
        last = columns.position(len(columns) - 1)
        position = Position(last.ledger_id, last.entry_id + 1)
        if first < stop:
            yield columns.slice(first, stop)


def _reaches(columns: EntryColumns, end: Position) -> bool:
    """Whether the last entry is the last one before `end`, or a later one."""
    last = columns.position(len(columns) - 1)
    return Position(last.ledger_id, last.entry_id + 1) >= end


def _first_at(columns: EntryColumns, position: Position) -> int:
    """Row of the first entry at or after `position`."""
    count = len(columns)
    if not count or columns.position(0) >= position:
        return 0
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if columns.position(middle) < position:
            low = middle + 1
        else:
            high = middle
    return low


def _is_exhausted(reader: EntryReader, position: Position, end: Position) -> bool:
    """Whether no further entry of the range can come, although its last entry was not delivered.

    This happens when the entries at its end are not for consumers, such as markers of transactions. Raises
    DataLossError when the topic was truncated or deleted.
    """
    last = reader.last_position()
    if last is not None and last >= position:
        # An entry exists: it is slow to come, or the next delivery is after the range.
        return False
    if last is None and position == EARLIEST:
        return True
    if last is None:
        raise DataLossError(
            f"{reader.topic} is empty, entries {position} to {end} are gone:"
            " it was truncated or deleted, or they expired"
        )
    return True


def last_position(client: Client, topic: TopicName) -> Position | None:
    """Position of the topic's last message; None when it is empty."""
    with EntryReader(client, topic, start=None) as reader:
        return reader.last_position()


def peek(client: Client, topic: TopicName, position: Position, timeout_s: float) -> EntryColumns:
    """The first entry at or after `position`; empty when none came within `timeout_s` seconds."""
    with EntryReader(client, topic, position, permits=1) as reader:
        columns = reader.read(timeout_s)
        first = _first_at(columns, position)
        return columns.slice(first, min(first + 1, len(columns)))

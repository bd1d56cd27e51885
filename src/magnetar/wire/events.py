"""The events of `ServerParser`: what a client's bytes ask of a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from magnetar.base.ids import ConsumerId, Position, ProducerId, RequestId
from magnetar.wire import pulsar_pb2 as pb

SEQUENCE_IDS_END: Final = 1 << 63
"""Upper bound of sequence ids, exclusive."""

TxnBits = tuple[int, int]
"""A transaction id as commands carry it: most and least significant 64 bits. A missing half is 0."""


class SendRun:
    """SENDs of one producer in the order of arrival; one row per frame."""

    __slots__ = (
        "bad",
        "chunked",
        "counts",
        "entries",
        "highest_sequence_ids",
        "out_of_range",
        "producer_id",
        "sequence_ids",
        "size_bytes",
        "txn",
    )

    producer_id: ProducerId
    sequence_ids: list[int]
    highest_sequence_ids: list[int] | None
    """Last sequence id of each frame's batch, or the frame's own id where it named none; None when no frame
    named one."""
    counts: list[int] | None
    """Messages in each frame, >= 1; None when each is one message."""
    entries: list[bytes]
    """The bytes to store: all that followed the command, see `EntryRun`. Copied out of the buffer."""
    size_bytes: int
    """Bytes of all entries."""
    bad: list[int] | None
    """Rows whose checksum does not match, ascending; None when there are none."""
    out_of_range: list[int] | None
    """Rows whose sequence ids, up to that of the last message, are not all below 2^63, ascending; None when
    there are none. The protocol's unsigned number is signed wherever it is stored, here and in Pulsar."""
    chunked: bool
    """Whether any frame is a chunk of a larger message."""
    txn: TxnBits | None
    """The transaction of all frames; None when there is none."""

    def __init__(self, producer_id: ProducerId) -> None:
        self.producer_id = producer_id
        self.sequence_ids = []
        self.highest_sequence_ids = None
        self.counts = None
        self.entries = []
        self.size_bytes = 0
        self.bad = None
        self.out_of_range = None
        self.chunked = False
        self.txn = None

    def __repr__(self) -> str:
        return (
            f"SendRun(producer={self.producer_id}, frames={len(self.entries)}, "
            f"bytes={self.size_bytes}, bad={self.bad})"
        )

    def add(
        self, sequence_id: int, count: int, highest_sequence_id: int | None, entry: bytes, *, good: bool
    ) -> None:
        """Appends a frame of any shape. A highest sequence id below the frame's own is ignored."""
        row = len(self.entries)
        if highest_sequence_id is None or highest_sequence_id < sequence_id:
            if self.highest_sequence_ids is not None:
                self.highest_sequence_ids.append(sequence_id)
        elif self.highest_sequence_ids is not None:
            self.highest_sequence_ids.append(highest_sequence_id)
        else:
            self.highest_sequence_ids = [*self.sequence_ids, highest_sequence_id]
        if self.counts is not None:
            self.counts.append(count)
        elif count != 1:
            self.counts = [1] * row
            self.counts.append(count)
        self.sequence_ids.append(sequence_id)
        self.entries.append(entry)
        if not good:
            self.note_bad(row)
        if sequence_id + count > SEQUENCE_IDS_END or self.highest_id(row) >= SEQUENCE_IDS_END:
            if self.out_of_range is None:
                self.out_of_range = []
            self.out_of_range.append(row)

    @property
    def plain(self) -> bool:
        """Whether each frame is one whole message and every number is in range."""
        return self.counts is None and not self.chunked and self.out_of_range is None

    def highest_id(self, row: int) -> int:
        """The last sequence id of this row's frame."""
        highest = self.highest_sequence_ids
        return self.sequence_ids[row] if highest is None else highest[row]

    def select(self, rows: Iterable[int]) -> SendRun:
        """These rows as a run of their own, sharing their bytes; none of them counts as damaged."""
        part = SendRun(self.producer_id)
        for row in rows:
            count = 1 if self.counts is None else self.counts[row]
            highest = None if self.highest_sequence_ids is None else self.highest_sequence_ids[row]
            part.add(self.sequence_ids[row], count, highest, self.entries[row], good=True)
            part.size_bytes += len(self.entries[row])
        part.chunked, part.txn = self.chunked, self.txn
        return part

    def note_bad(self, row: int) -> None:
        """Marks `row`, the last one, as damaged."""
        if self.bad is None:
            self.bad = [row]
        else:
            self.bad.append(row)


class AckEvent:
    """Acknowledgements of one consumer."""

    __slots__ = (
        "batch_acks",
        "consumer_id",
        "cumulative",
        "positions",
        "request_id",
        "txn",
        "validation_error",
    )

    consumer_id: ConsumerId
    cumulative: bool
    """Acknowledges all entries up to the position. Then there is normally one position."""
    positions: list[Position]
    """Entries acknowledged as a whole."""
    batch_acks: list[tuple[Position, tuple[int, ...], int]] | None
    """Entries acknowledged in part: position, words of the bit set, batch size (0 when not said).

    Words are unsigned 64-bit, least significant word first; a set bit is a message that is still NOT
    acknowledged. None when there are none.
    """
    request_id: RequestId | None
    """Id of the ACK_RESPONSE that the client waits for; None when it waits for none."""
    validation_error: int | None
    """Why the client discarded the message (`CommandAck.ValidationError`); the message counts as
    acknowledged."""
    txn: TxnBits | None
    """The transaction that the ack belongs to; None when there is none."""

    def __init__(
        self,
        consumer_id: ConsumerId,
        positions: list[Position],
        *,
        cumulative: bool = False,
        batch_acks: list[tuple[Position, tuple[int, ...], int]] | None = None,
        request_id: RequestId | None = None,
        validation_error: int | None = None,
        txn: TxnBits | None = None,
    ) -> None:
        self.consumer_id = consumer_id
        self.positions = positions
        self.cumulative = cumulative
        self.batch_acks = batch_acks
        self.request_id = request_id
        self.validation_error = validation_error
        self.txn = txn

    def __repr__(self) -> str:
        kind = "cumulative" if self.cumulative else "individual"
        return (
            f"AckEvent(consumer={self.consumer_id}, {kind}, positions={self.positions}, "
            f"batch_acks={self.batch_acks}, request_id={self.request_id})"
        )


class FlowEvent:
    """A consumer grants `permits` >= 0 more messages."""

    __slots__ = ("consumer_id", "permits")

    consumer_id: ConsumerId
    permits: int

    def __init__(self, consumer_id: ConsumerId, permits: int) -> None:
        self.consumer_id = consumer_id
        self.permits = permits

    def __repr__(self) -> str:
        return f"FlowEvent(consumer={self.consumer_id}, permits={self.permits})"


class CommandEvent:
    """Any other command.

    A SEND that is a marker or carries a message id arrives like this too, without its entry: a run has no
    field for either.
    """

    __slots__ = ("command", "type")

    type: int
    """Number in `BaseCommand.Type`, or an unknown number; then `command` has none of the known fields."""
    command: pb.BaseCommand

    def __init__(self, type: int, command: pb.BaseCommand) -> None:  # noqa: A002  # the protocol's word
        self.type = type
        self.command = command

    def __repr__(self) -> str:
        return f"CommandEvent({self.type}, {str(self.command)[:200]!r})"


class LongList:
    """An ACK or REDELIVER_UNACKNOWLEDGED_MESSAGES of very many message ids, which is not decoded yet:
    `wire/long_lists.py` does that in parts."""

    __slots__ = ("body", "type")

    type: int
    """Number in `BaseCommand.Type`."""
    body: bytes
    """The encoded CommandAck or CommandRedeliverUnacknowledgedMessages."""

    def __init__(self, type: int, body: bytes) -> None:  # noqa: A002  # the protocol's word
        self.type = type
        self.body = body

    def __repr__(self) -> str:
        return f"LongList({self.type}, {len(self.body)} bytes)"


ServerEvent = SendRun | AckEvent | FlowEvent | CommandEvent | LongList

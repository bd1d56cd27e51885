"""The publish path of a topic that stores its messages, from what was admitted to its receipt (pure).

    rows ──duplicates──▶ line ──────────────────────────▶ receipt without a position
         ──new──▶ log, line ──durable: `release`──▶ receipt
                            ──lost: `failed`──▶ an error, or nothing: the client sends them again
         ──refused──▶ line ──▶ error

Answers leave in the order of the SENDs, whatever they are (`unanswered.py`). The driver is the topic
(`topic.py`): it hears of its log, loads deduplication and transactions, and sends clients away.
"""

from __future__ import annotations

from typing import Protocol

from magnetar.base.errors import LogError, MagnetarError
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.broker.dedup.dedup_state import DedupState, Span, sequence_marks
from magnetar.broker.dedup.overlap import new_part
from magnetar.broker.errors import RefusedError, wire_code
from magnetar.broker.topic.entry import pieces_to_come
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.publish_path import Limited, PublishPath
from magnetar.broker.topic.topic_tally import TopicTally
from magnetar.broker.topic.unanswered import ReceiptLine, Unanswered
from magnetar.managedlog.errors import LogTerminatedError
from magnetar.wire.events import SendRun, TxnBits


class AppendedLog(Protocol):
    """The log of the topic: `managedlog/log.py` `ManagedLog`."""

    def append(self, entries: list[bytes], counts: list[int] | None) -> Position:
        """Position of the first entry; the log tells when they are durable, or lost. Raises LogError."""


class Dedup(Protocol):
    """Deduplication: `dedup/deduplication.py` `Deduplication`."""

    duplicates: int

    @property
    def state(self) -> DedupState: ...

    def persisted(self, producer: str, mark: int, position: Position, count: int) -> None:
        """Entries of the producer are durable, and with them its numbers up to `mark`."""


class TransactionLog(Protocol):
    """Entries of transactions: `transactions/topic_transactions.py` `TopicTransactions`."""

    def append(self, txn: TxnBits, entries: list[bytes], counts: list[int] | None) -> Position: ...


class SpaceWait(Protocol):
    """The wait for disk space: `disk_mark.py` `RoomWait`."""

    @property
    def refusal(self) -> str | None:
        """The error for producers while the topic waits; None: it does not."""


class StoredPublishing(PublishPath):
    """The publish path of one persistent topic."""

    def __init__(
        self,
        name: TopicName,
        log: AppendedLog,
        room: SpaceWait,
        limits: Limited,
        tally: TopicTally,
        line: ReceiptLine | None = None,
    ) -> None:
        super().__init__(limits, tally)
        self._name = name
        self._log = log
        self._room = room
        self._line = ReceiptLine() if line is None else line
        self.dedup: Dedup | None = None
        """Set while deduplication is on."""
        self.transactions: TransactionLog | None = None
        """Set from the first transaction on."""

    def _take(self, producer: Producer, run: SendRun) -> None:
        if self.dedup is None:
            marks = None
        else:
            partial = pieces_to_come(run.entries) if run.chunked else None
            marks = sequence_marks(run.sequence_ids, run.highest_sequence_ids, run.counts, partial)
            spans = self.dedup.state.admit(producer.name, run.sequence_ids, marks)
            if spans is not None:
                self._publish_spans(producer, run, spans, marks)
                return
        self._append(producer, run, -1 if marks is None else max(marks))

    def refuse(self, producer: Producer, run: SendRun, error: RefusedError) -> None:
        assert run.sequence_ids, "nothing to refuse"
        self._line.add(Unanswered(producer, run.sequence_ids, None, None, run.size_bytes, -1, refusal=error))
        self.release(EARLIEST)

    def _publish_spans(self, producer: Producer, run: SendRun, spans: list[Span], marks: list[int]) -> None:
        assert spans[-1].stop == len(run.entries), "rows without a verdict"
        for start, stop, duplicate, known in spans:
            part = run.select(range(start, stop))
            if not duplicate:
                if known >= 0:
                    part.entries, part.counts = new_part(part.entries, part.counts, known, self._name)
                self._append(producer, part, max(marks[start:stop]))
                continue
            assert self.dedup is not None
            self.dedup.duplicates += stop - start
            ids, highest_ids = part.sequence_ids, part.highest_sequence_ids
            self._line.add(Unanswered(producer, ids, highest_ids, None, part.size_bytes, -1))
        self.release(EARLIEST)

    def _append(self, producer: Producer, run: SendRun, mark: int) -> None:
        """`run.size_bytes` counts what was sent, of which a part may be known already."""
        counts, entries, sequence_ids, size_bytes = run.counts, run.entries, run.sequence_ids, run.size_bytes
        assert len(entries) == len(sequence_ids), "a row is one entry"
        try:
            if run.txn is None:
                position = self._log.append(entries, counts)
            else:
                assert self.transactions is not None, "it was admitted"
                position = self.transactions.append(run.txn, entries, counts)
        except LogError as error:
            if self.dedup is not None:
                # Appends in flight may still become durable: when they are sent again, they are duplicates.
                self.dedup.state.forget_pushed(producer.name, self._line.mark_of(producer.name))
            producer.connection.published(size_bytes)
            # A terminated topic detaches its producers, and they are told when they come back: clients that
            # are told here first forget the producer and its pending messages. So does one on a full disk.
            if not isinstance(error, LogTerminatedError) and self._room.refusal is None:
                producer.connection.send_errors(producer, sequence_ids, wire_code(error), str(error))
            return
        self.tally.accepted(producer, len(entries) if counts is None else sum(counts), size_bytes)
        highest_ids = run.highest_sequence_ids
        self._line.add(Unanswered(producer, sequence_ids, highest_ids, position, size_bytes, mark))

    def release(self, durable: Position) -> None:
        """Answers what waits at the head of the line, as far as it is durable."""
        line = self._line
        while (head := line.pop(durable)) is not None:
            position = head.position
            if position is not None and self.dedup is not None:
                self.dedup.persisted(head.producer.name, head.mark, position, head.count)
            connection = head.producer.connection
            if head.refusal is not None:
                code, reason = wire_code(head.refusal), str(head.refusal)
                connection.send_errors(head.producer, head.sequence_ids, code, reason)
            else:
                connection.receipts(head.producer, head.sequence_ids, head.highest_ids, position)
            connection.published(head.size_bytes)

    def failed(self, error: MagnetarError, *, told: bool) -> None:
        """The log lost what was appended and is not durable: nothing that waits was acknowledged. `told`:
        whether producers get the error."""
        code = wire_code(error)
        for item in self._line.clear():
            if self.dedup is not None:
                self.dedup.state.forget_pushed(item.producer.name)
            item.producer.connection.published(item.size_bytes)
            if told:
                item.producer.connection.send_errors(item.producer, item.sequence_ids, code, str(error))

    def check(self) -> None:
        """Asserts what must always hold."""
        self._line.check()
        assert min(self.tally.amounts()) >= 0, "less than nothing was accepted"
        assert self._room.refusal is None or not self._line.stored, "messages wait for a log that lost them"
        assert self.transactions is None or self.screen is not None, "any entry passes as a transaction's"

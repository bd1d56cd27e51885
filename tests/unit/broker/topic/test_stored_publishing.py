"""The publish path of a stored topic, alone: what is sent and answered (`transcripts/publish-*.txt`).

    > send p 0 1
    < log takes 0-1
    > durable 1
    < p receipt 0 at 0, 1 at 1

The tests have no event loop, no log and no connection: what these would do is a line of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from magnetar.base.errors import LogError, StorageError
from magnetar.base.ids import LedgerId, Position, ProducerId
from magnetar.base.names import TopicName
from magnetar.broker.dedup.dedup_state import DedupState
from magnetar.broker.errors import NotAllowedError, RefusedError
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.stored_publishing import StoredPublishing
from magnetar.broker.topic.topic_tally import TopicTally
from magnetar.managedlog.errors import LogTerminatedError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import SendRun, TxnBits
from support.transcripts import replayed

FILES = sorted((Path(__file__).parent / "transcripts").glob("publish-*.txt"))
ENTRY = b"entry"
TXN: TxnBits = (0, 7)


class Around:
    """What a publish path has around it: a log, a wait for space, limits, transactions, deduplication."""

    gate: Any = None

    def __init__(self, said: list[str]) -> None:
        self.said = said
        self.count = 0
        self.error: LogError | None = None
        self.refusal: str | None = None
        self.duplicates = 0
        self.state = DedupState()

    def append(self, entries: list[bytes], counts: list[int] | None) -> Position:
        if self.error is not None:
            raise self.error
        first = self.count
        self.count += len(entries)
        self.said.append(f"log takes {first}-{self.count - 1}")
        return Position(LedgerId(1), first)

    def persisted(self, producer: str, mark: int, position: Position, count: int) -> None:
        self.state.persisted(producer, mark)


class Transactions:
    """Entries of transactions, in the same log."""

    def __init__(self, around: Around) -> None:
        self._around = around

    def append(self, txn: TxnBits, entries: list[bytes], counts: list[int] | None) -> Position:
        self._around.said.append(f"transaction {txn[1]}")
        return self._around.append(entries, counts)


class Gate:
    """Limits: no message with an odd number, and one message at a time."""

    def refusals(self, run: SendRun) -> dict[int, RefusedError]:
        refusal = NotAllowedError("an odd number")
        return {row: refusal for row, number in enumerate(run.sequence_ids) if number % 2}

    def passed(self, connection: Connection, run: SendRun) -> None:
        if len(run.entries) > 1:
            connection.said.append(f"{connection.name} is not read for a while")


class Connection:
    """The connection of a producer."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name = name
        self.said = said
        self.in_flight = 0

    def receipts(
        self, producer: Producer, numbers: list[int], highest: list[int] | None, position: Position | None
    ) -> None:
        if position is None:
            told = [f"{number}, a duplicate" for number in numbers]
        else:
            told = [f"{number} at {position.entry_id + row}" for row, number in enumerate(numbers)]
        self.said.append(f"{self.name} receipt {', '.join(told)}")

    def send_errors(self, producer: Producer, numbers: list[int], code: pb.ServerError, message: str) -> None:
        name = pb.ServerError.Name(code)
        self.said.append(f"{self.name} error {name} for {', '.join(map(str, numbers))}: {message}")

    def published(self, size_bytes: int) -> None:
        self.in_flight -= size_bytes


class Stage:
    """One topic without its driver."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.around = Around(self.said)
        self.tally = TopicTally()
        name = TopicName.parse("persistent://public/default/t")
        around = self.around
        self.path = StoredPublishing(name, around, around, around, self.tally)
        self.producers: dict[str, Producer] = {}

    def _producer(self, name: str) -> Producer:
        if name not in self.producers:
            connection = cast("Any", Connection(name, self.said))
            self.producers[name] = Producer(ProducerId(1), name, connection, ready=True)
        return self.producers[name]

    def say(self, line: str) -> list[str]:
        word, *rest = line.split()
        HAPPENS[word](self, *(int(each) if each.isdigit() else each for each in rest))
        self.path.check()
        said = self.said[:]
        self.said.clear()
        return said

    def _send(
        self,
        name: str,
        numbers: Sequence[int],
        *,
        damaged: int = -1,
        count: int = 1,
        txn: TxnBits | None = None,
    ) -> None:
        producer, run = self._producer(name), SendRun(ProducerId(1))
        for number in numbers:
            run.add(number, count, None, ENTRY, good=number != damaged)
        run.size_bytes = len(ENTRY) * len(run.entries)
        run.txn = txn
        cast("Any", producer.connection).in_flight += run.size_bytes
        self.path.publish(producer, run)

    # -- what happens ------------------------------------------------------------------------------

    def on_send(self, name: str, *numbers: int) -> None:
        self._send(name, numbers)

    def on_damaged(self, name: str, damaged: int, *numbers: int) -> None:
        self._send(name, numbers, damaged=damaged)

    def on_claims(self, name: str, count: int, *numbers: int) -> None:
        self._send(name, numbers, count=count)

    def on_txn(self, name: str, *numbers: int) -> None:
        self._send(name, numbers, txn=TXN)

    def on_durable(self, upto: int) -> None:
        self.path.release(Position(LedgerId(1), upto))

    def on_refuse(self, name: str, number: int) -> None:
        run = SendRun(ProducerId(1))
        run.add(number, 1, None, ENTRY, good=True)
        self.path.refuse(self._producer(name), run, NotAllowedError("the transaction is over"))

    def on_waits(self, name: str) -> None:
        self._producer(name).ready = False

    def on_close(self) -> None:
        self.path.closed = True

    def on_dedup(self) -> None:
        self.path.dedup = self.around

    def on_limits(self) -> None:
        self.around.gate = Gate()

    def on_transactions(self) -> None:
        self.path.transactions = Transactions(self.around)
        self.path.screen = lambda entries: {}

    def on_strangers(self) -> None:
        refusal = NotAllowedError("it names a transaction")
        self.path.screen = lambda entries: {0: refusal}

    def on_fails(self) -> None:
        self.around.error = LogError("the log is fenced")
        self.path.failed(StorageError("the log is fenced"), told=True)

    def on_full(self) -> None:
        self.around.error = LogError("the disk is full")
        self.path.failed(StorageError("the disk is full"), told=False)
        self.around.refusal = "no space"

    def on_refuses(self) -> None:
        self.around.error = LogError("too much is under way")

    def on_takes(self) -> None:
        self.around.error = None

    def on_terminate(self) -> None:
        self.around.error = LogTerminatedError("t")

    def on_counts(self) -> None:
        flight = sum(cast("Any", each.connection).in_flight for each in self.producers.values())
        duplicates = self.around.duplicates
        self.said.append(
            f"{self.tally.messages_in} accepted, {duplicates} duplicates, {flight} bytes in flight"
        )


HAPPENS: dict[str, Callable[..., None]] = {
    "send": Stage.on_send,
    "damaged": Stage.on_damaged,
    "claims": Stage.on_claims,
    "txn": Stage.on_txn,
    "durable": Stage.on_durable,
    "refuse": Stage.on_refuse,
    "waits": Stage.on_waits,
    "close": Stage.on_close,
    "dedup": Stage.on_dedup,
    "limits": Stage.on_limits,
    "transactions": Stage.on_transactions,
    "strangers": Stage.on_strangers,
    "fails": Stage.on_fails,
    "full": Stage.on_full,
    "refuses": Stage.on_refuses,
    "takes": Stage.on_takes,
    "terminate": Stage.on_terminate,
    "counts": Stage.on_counts,
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_as_the_transcript_says(file: Path) -> None:
    lines = replayed(file, Stage().say)
    assert lines == file.read_text(encoding="utf-8").splitlines()


def test_messages_that_wait_for_a_log_without_space_are_noticed() -> None:
    stage = Stage()
    stage.say("send p 0")
    stage.around.refusal = "no space"
    with pytest.raises(AssertionError, match="a log that lost them"):
        stage.path.check()


def test_a_topic_that_takes_anything_for_a_transaction_is_noticed() -> None:
    stage = Stage()
    stage.path.transactions = Transactions(stage.around)
    with pytest.raises(AssertionError, match="passes as a transaction"):
        stage.path.check()

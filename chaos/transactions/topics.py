"""Topics of a story: filled before the first transaction, and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from chaos.transactions.history import Reading
from chaos.transactions.links import CommandType, Links, LostError, Where
from magnetar.base.ids import ConsumerId, LedgerId, Position, ProducerId
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.client import MessageEvent, ReceiptRun
from magnetar.wire.commands import message_id_data
from magnetar.wire.payload import build_entry
from magnetar.wire.sends import encode_send

SUBSCRIPTION: Final = "work"
PERMITS: Final = 1 << 30
_BEFORE_ALL: Final = message_id_data(Position(LedgerId(-1), -1))
_PAUSE_S: Final = 0.3


@dataclass(frozen=True)
class Topics:
    """Those of one story."""

    source: str
    outs: tuple[str, str]


def fill(where: Where, topics: Topics, count: int) -> None:
    """Publishes the numbers that are the work, and makes the topics keep what is written. Raises
    LostError."""
    links = Links(where)
    try:
        for topic, name in (*((out, "wanted") for out in topics.outs), (topics.source, SUBSCRIPTION)):
            links.answered(
                [
                    links.ask(
                        links.to(topic),
                        CommandType.SUBSCRIBE,
                        topic=topic,
                        subscription=name,
                        subType=pb.CommandSubscribe.Shared,
                        consumer_id=links.next_request(),
                        initialPosition=pb.CommandSubscribe.Earliest,
                    )
                ]
            )
        source = links.to(topics.source)
        links.answered([links.ask(source, CommandType.PRODUCER, topic=topics.source, producer_id=1)])
        for number in range(count):
            metadata = pb.MessageMetadata(producer_name="fill", sequence_id=number, publish_time=1)
            source.send(encode_send(ProducerId(1), number, 1, build_entry(metadata, b"%d" % number)))
        links.until(lambda: sum(len(run.sequence_ids) for run in _receipts(links)) == count)
    finally:
        links.close()


def _receipts(links: Links) -> list[ReceiptRun]:
    return [event for event in links.events if isinstance(event, ReceiptRun)]


def read(where: Where, topic: str, reading: Reading, go_on: Callable[[], bool] | None = None) -> list[str]:
    """Reads from the first message to what was the last one when it began; with `go_on` for as long as that
    is true. What it saw goes to `reading` too. Raises LostError."""
    links = Links(where)
    try:
        link = links.to(topic)
        reading.broker = link.url
        subscribe = links.ask(
            link,
            CommandType.SUBSCRIBE,
            topic=topic,
            subscription=reading.reader,
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=1,
            durable=False,
            initialPosition=pb.CommandSubscribe.Earliest,
            start_message_id=_BEFORE_ALL,
        )
        (answer,) = links.answered([subscribe])
        if answer.type == CommandType.ERROR:
            raise LostError(answer.error.message)
        (answer,) = links.answered([links.ask(link, CommandType.GET_LAST_MESSAGE_ID, consumer_id=1)])
        if answer.type == CommandType.ERROR:
            raise LostError(answer.error.message)
        last = answer.getLastMessageIdResponse.last_message_id
        end = None if last.entryId >= 1 << 63 else (last.ledgerId, last.entryId)
        link.send(encode_flow(ConsumerId(1), PERMITS))
        at: tuple[int, int] | None = None

        def has_come() -> bool:
            nonlocal at
            for event in links.events:
                assert isinstance(event, MessageEvent)
                reading.seen.append(event.entry[event.payload_at :].decode())
                at = (event.position.ledger_id, event.position.entry_id)
            links.events.clear()
            return end is None or (at is not None and at >= end)

        links.until(has_come)
        reading.is_whole = True
        while go_on is not None and go_on():
            links.read(_PAUSE_S)
            has_come()
        return reading.seen
    finally:
        links.close()

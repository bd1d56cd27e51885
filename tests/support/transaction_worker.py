"""A worker that takes from one topic and writes to two, in transactions, and the history of what it was told.

It runs many transactions at once on one connection, phase by phase, and survives kills of the broker: what it
does not know the end of it asks for again.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Set
from dataclasses import dataclass, field

from magnetar.base.ids import Position
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.client import MessageEvent, ReceiptRun
from magnetar.wire.commands import message_id_data
from magnetar.wire.frames import encode_command
from support.raw_client import RawClient
from support.seen import FIELD_OF_TYPE, Type
from support.sessions import command, encode_payload, entry, send

IN = "persistent://public/default/txn-in"
OUTS = ("persistent://public/default/txn-out-0", "persistent://public/default/txn-out-1")
SUBSCRIPTION = "work"
TTL_MS = 120_000


class LostError(Exception):
    """The broker is gone."""


@dataclass
class Attempt:
    """One transaction, as its client knows it."""

    inputs: list[tuple[Position, int]]
    commit: bool
    txn: tuple[int, int] | None = None
    refused: bool = False
    """Something in it failed: it is aborted."""
    ending: bool = False
    """END_TXN was sent."""
    outcome: str = "unknown"
    """committed or aborted, once the broker has said so."""


@dataclass
class History:
    """What the worker was told."""

    attempts: list[Attempt] = field(default_factory=list)
    kills: int = 0

    def count(self, outcome: str) -> int:
        return sum(attempt.outcome == outcome for attempt in self.attempts)


class Worker:
    """One connection with a consumer and two producers."""

    def __init__(self, url: str, history: History, chance: random.Random, *, at_once: int = 50) -> None:
        self.history = history
        self._chance = chance
        self._at_once = at_once
        self._client = RawClient(url)
        self._answers: dict[int, pb.BaseCommand] = {}
        self._receipts: set[tuple[int, int]] = set()
        self._waiting: deque[tuple[Position, int]] = deque()
        self._request = 0
        self._sequence = 0
        asked = [
            self._ask(Type.PRODUCER, topic=name, producer_id=number, request_id=self._next())
            for number, name in enumerate(OUTS)
        ]
        asked.append(
            self._ask(
                Type.SUBSCRIBE,
                topic=IN,
                subscription=SUBSCRIPTION,
                subType=pb.CommandSubscribe.Shared,
                consumer_id=1,
                request_id=self._next(),
                initialPosition=pb.CommandSubscribe.Earliest,
            )
        )
        self._await(asked)
        self._client.send(encode_flow(1, 1 << 30))

    def close(self) -> None:
        self._client.socket.close()

    # -- the connection ----------------------------------------------------------------------------

    def _next(self) -> int:
        self._request += 1
        return self._request

    def _ask(self, kind: int, *, request_id: int, **fields: object) -> int:
        self._client.send(command(kind, request_id=request_id, **fields))
        return request_id

    def _read(self, timeout_s: float = 60.0) -> None:
        if self._client.closed:
            raise LostError
        self._client.read(timeout_s)
        for seen in self._client.seen:
            if isinstance(seen, MessageEvent):
                self._waiting.append((seen.position, int(seen.entry[seen.payload_at :])))
            elif isinstance(seen, ReceiptRun):
                self._receipts.update((seen.producer_id, number) for number in seen.sequence_ids)
            elif isinstance(seen, pb.BaseCommand):
                body = getattr(seen, FIELD_OF_TYPE[seen.type])
                if seen.type == Type.PING:
                    self._client.send(command(Type.PONG))
                elif seen.type in (Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER):
                    raise LostError
                elif seen.type == Type.SEND_ERROR:
                    self._receipts.add((body.producer_id, body.sequence_id))
                    self._answers[-1 - body.sequence_id] = seen
                elif hasattr(body, "request_id"):
                    self._answers[body.request_id] = seen
        self._client.seen.clear()

    def _await(
        self, requests: list[int], receipts: Set[tuple[int, int]] = frozenset()
    ) -> dict[int, pb.BaseCommand]:
        while not (all(each in self._answers for each in requests) and receipts <= self._receipts):
            self._read()
        self._receipts -= receipts
        return {each: self._answers.pop(each) for each in requests}

    # -- transactions ------------------------------------------------------------------------------

    def _take(self) -> list[Attempt]:
        attempts = []
        while len(attempts) < self._at_once and self._waiting:
            count = min(len(self._waiting), self._chance.choice((1, 1, 2, 3)))
            inputs = [self._waiting.popleft() for _ in range(count)]
            attempts.append(Attempt(inputs, commit=self._chance.random() < 0.8))
        return attempts

    def round(self, idle_s: float = 0.5) -> int:
        """Runs some transactions; how many, 0 when there was nothing to take. Raises LostError."""
        if not self._waiting:
            self._read(idle_s)
        attempts = self._take()
        self.history.attempts += attempts
        begun = {
            self._ask(
                Type.NEW_TXN, request_id=self._next(), txn_ttl_seconds=TTL_MS, tc_id=number % 4
            ): attempt
            for number, attempt in enumerate(attempts)
        }
        for request, answer in self._await(list(begun)).items():
            body = answer.newTxnResponse
            assert not body.HasField("error"), body
            begun[request].txn = body.txnid_most_bits, body.txnid_least_bits
        self._add(attempts)
        self._work(attempts)
        self.end(attempts)
        return len(attempts)

    def _ids(self, attempt: Attempt) -> dict[str, int]:
        assert attempt.txn is not None
        return {"txnid_most_bits": attempt.txn[0], "txnid_least_bits": attempt.txn[1]}

    def _add(self, attempts: list[Attempt]) -> None:
        asked = []
        for attempt in attempts:
            ids = self._ids(attempt)
            asked.append(
                self._ask(Type.ADD_PARTITION_TO_TXN, request_id=self._next(), partitions=OUTS, **ids)
            )
            subscriptions = [pb.Subscription(topic=IN, subscription=SUBSCRIPTION)]
            asked.append(
                self._ask(
                    Type.ADD_SUBSCRIPTION_TO_TXN, request_id=self._next(), subscription=subscriptions, **ids
                )
            )
        for answer in self._await(asked).values():
            body = getattr(answer, FIELD_OF_TYPE[answer.type])
            assert not body.HasField("error"), body

    def _work(self, attempts: list[Attempt]) -> None:
        acks: dict[int, Attempt] = {}
        receipts = set()
        frames = []
        for attempt in attempts:
            ids = self._ids(attempt)
            for position, value in attempt.inputs:
                for producer_id in range(len(OUTS)):
                    body = pb.CommandSend(producer_id=producer_id, sequence_id=self._sequence, **ids)
                    frame = pb.BaseCommand(type=Type.SEND, send=body)
                    frames.append(encode_payload(frame, entry(b"%d" % value, self._sequence)))
                    receipts.add((producer_id, self._sequence))
                self._sequence += 1
                request = self._next()
                ack = pb.CommandAck(
                    consumer_id=1,
                    ack_type=pb.CommandAck.Individual,
                    message_id=[message_id_data(position)],
                    request_id=request,
                    **ids,
                )
                frames.append(encode_command(pb.BaseCommand(type=Type.ACK, ack=ack)))
                acks[request] = attempt
        self._client.send(*frames)
        for request, answer in self._await(list(acks), receipts).items():
            if answer.ackResponse.HasField("error"):
                acks[request].refused = True
        assert not any(number < 0 for number in self._answers), self._answers

    def end(self, attempts: list[Attempt]) -> None:
        """Ends them as they are to end; also those whose end was not told before. Raises LostError."""
        asked = {}
        for attempt in attempts:
            attempt.ending = True
            action = pb.COMMIT if attempt.commit and not attempt.refused else pb.ABORT
            request = self._next()
            self._ask(Type.END_TXN, request_id=request, txn_action=action, **self._ids(attempt))
            asked[request] = attempt
        for request, answer in self._await(list(asked)).items():
            body, attempt = answer.endTxnResponse, asked[request]
            committed = attempt.commit and not attempt.refused
            if body.HasField("error"):
                # It ended otherwise, or never began for good.
                assert body.error in (pb.InvalidTxnStatus, pb.TransactionNotFound), body
                committed = not committed if body.error == pb.InvalidTxnStatus else False
            attempt.outcome = "committed" if committed else "aborted"

    def resolve(self) -> None:
        """Ends what a kill left open: what was ending the same way again, the rest by an abort."""
        open_ones = [each for each in self.history.attempts if each.outcome == "unknown"]
        for attempt in open_ones:
            if not attempt.ending:
                attempt.refused = True
                if attempt.txn is None:
                    attempt.outcome = "aborted"
        self.end([each for each in open_ones if each.txn is not None])


def fill(url: str, count: int, first: int = 0) -> None:
    """Publishes the numbers that are the work."""
    with RawClient(url) as client:
        for number, name in enumerate(OUTS):
            # Topics without a subscription are deleted after a minute.
            client.ask(
                Type.SUBSCRIBE,
                topic=name,
                subscription="wanted",
                subType=pb.CommandSubscribe.Exclusive,
                consumer_id=number,
                request_id=10 + number,
                initialPosition=pb.CommandSubscribe.Earliest,
            )
        client.ask(Type.PRODUCER, topic=IN, producer_id=1, request_id=1)
        for start in range(first, first + count, 1_000):
            stop = min(first + count, start + 1_000)
            client.send(*(send(1, number, b"%d" % number) for number in range(start, stop)))
            client.wait(lambda n=stop - start: len(client.receipts_of_all) >= n, "receipts")
            client.seen.clear()


def everything_in(url: str, topic: str) -> list[int]:
    """What a reader gets from the beginning to the end of a topic."""
    with RawClient(url) as client:
        client.ask(
            Type.SUBSCRIBE,
            topic=topic,
            subscription="reader",
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=1,
            request_id=1,
            durable=False,
            initialPosition=pb.CommandSubscribe.Earliest,
            start_message_id=message_id_data(Position(-1, -1)),
        )
        last = client.ask(Type.GET_LAST_MESSAGE_ID, consumer_id=1, request_id=2).last_message_id
        end = Position(last.ledgerId, last.entryId)
        if last.entryId >= 1 << 63:
            return []
        client.send(encode_flow(1, 1 << 30))
        newest = client.seen
        client.wait(
            lambda: any(isinstance(each, MessageEvent) and each.position >= end for each in newest[-50:]),
            f"the end of {topic}",
            120,
        )
        return [int(each.entry[each.payload_at :]) for each in client.messages]


def check(history: History, outputs: list[list[int]], count: int) -> None:
    """Every number once in each output, and exactly those of committed transactions."""
    committed = [
        value for each in history.attempts if each.outcome == "committed" for _, value in each.inputs
    ]
    assert history.count("unknown") == 0
    assert len(committed) == len(set(committed)), "an input was taken by two committed transactions"
    assert sorted(committed) == list(range(count)), "an input was lost"
    for output in outputs:
        assert len(output) == len(set(output)), "an output is there twice"
        assert sorted(output) == sorted(committed), "an output is lost, or is there though it was aborted"

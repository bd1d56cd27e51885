"""A worker in transactions, which knows no more than what brokers tell it.

It takes inputs and writes each to both outputs, many transactions at once on one connection to each
broker, phase by phase. When a broker is gone it opens everything anew, and ends again what it does not know
the end of. Some transactions are left to their time, some acknowledge what another one does, and some are
asked for again, for the opposite, or for more, after their end.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from chaos.transactions.history import Attempt, History
from chaos.transactions.links import FIELDS, CommandType, Links, LostError, Where
from chaos.transactions.topics import PERMITS, SUBSCRIPTION, Topics
from magnetar.base.ids import ConsumerId, Position, ProducerId
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.client import MessageEvent
from magnetar.wire.commands import message_id_data
from magnetar.wire.events import TxnBits
from magnetar.wire.payload import build_entry
from magnetar.wire.sends import encode_send

COORDINATORS: Final = 4
_ASSIGN: Final = "persistent://pulsar/system/transaction_coordinator_assign-partition-{}"
_TTL_MS: Final = 300_000
_LEFT_TTL_MS: Final = 3_000
_LEFT_S: Final = _LEFT_TTL_MS / 1_000 + 6.0
"""When the time of a transaction that is left is over for certain."""
_IDLE_S: Final = 0.3
_CONSUMER: Final = ConsumerId(1)
_PASSING: Final = frozenset(
    (
        pb.ServerError.ServiceNotReady,
        pb.ServerError.TransactionCoordinatorNotFound,
        pb.ServerError.MetadataError,
        pb.ServerError.PersistenceError,
    )
)
"""Answers after which a client looks again."""


class Worker:
    """One worker of a story."""

    def __init__(
        self, number: int, where: Where, topics: Topics, history: History, seed: int, *, at_once: int
    ) -> None:
        self._number, self._where, self._topics, self._history = number, where, topics, history
        self._chance = random.Random(seed)
        self._at_once = at_once
        self._links = Links(where)
        self._sends = history.sends.setdefault(number, [])
        self._mine: list[Attempt] = []
        """All whose end is not known."""
        self._left: deque[tuple[float, Attempt]] = deque()
        self._waiting: deque[tuple[Position, int]] = deque()
        self._receipts: set[tuple[int, int]] = set()
        self._sequence = 0

    def run(self, go_on: Callable[[], bool]) -> None:
        """Works until all inputs are done and all ends are known, or until it is told to stop."""
        while go_on() and not self._is_over():
            try:
                self._open()
                while go_on() and not self._is_over():
                    self._round()
            except LostError:
                self._history.figures["connections lost"] += 1
                # Between two looks at whether there is a broker again.
                time.sleep(0.1)
            finally:
                self._links.close()

    def _is_over(self) -> bool:
        return len(self._history.done) == self._history.count and not self._mine and not self._left

    # -- the connection ----------------------------------------------------------------------------

    def _open(self) -> None:
        self._links = links = Links(self._where)
        self._waiting.clear()
        self._receipts.clear()
        asked = [
            links.ask(links.to(topic), CommandType.PRODUCER, topic=topic, producer_id=number)
            for number, topic in enumerate(self._topics.outs)
        ]
        asked += [
            links.ask(self._coordinator(number), CommandType.TC_CLIENT_CONNECT_REQUEST, tc_id=number)
            for number in range(COORDINATORS)
        ]
        source = links.to(self._topics.source)
        wanted: dict[str, Any] = {"subType": pb.CommandSubscribe.Shared, "consumer_id": 1}
        wanted |= {"topic": self._topics.source, "subscription": SUBSCRIPTION}
        asked.append(
            links.ask(source, CommandType.SUBSCRIBE, initialPosition=pb.CommandSubscribe.Earliest, **wanted)
        )
        for answer in self._answers(asked):
            if answer.type == CommandType.ERROR:
                raise LostError(answer.error.message)
            if answer.tcClientConnectResponse.HasField("error"):
                raise LostError(answer.tcClientConnectResponse.message)
        source.send(encode_flow(_CONSUMER, PERMITS))
        self._resolve()

    def _coordinator(self, number: int) -> Any:
        return self._links.to(_ASSIGN.format(number))

    def _hear(self) -> None:
        for event in self._links.events:
            if isinstance(event, MessageEvent):
                self._waiting.append((event.position, int(event.entry[event.payload_at :])))
            else:
                self._receipts.update((event.producer_id, number) for number in event.sequence_ids)
        self._links.events.clear()

    def _answers(self, asked: list[int]) -> list[pb.BaseCommand]:
        answers = self._links.answered(asked)
        self._hear()
        return answers

    def _results(self, asked: Iterable[int]) -> list[int | None]:
        """The error of each answer, None where there is none. Raises LostError for those that pass."""
        found: list[int | None] = []
        for answer in self._answers(list(asked)):
            body = getattr(answer, FIELDS[answer.type])
            error = body.error if body.HasField("error") else None
            if error in _PASSING:
                raise LostError(body.message)
            found.append(error)
        return found

    def _wrong(self, text: str) -> None:
        self._history.wrong.append(text)

    # -- transactions ------------------------------------------------------------------------------

    def _round(self) -> None:
        if not self._waiting:
            self._links.read(_IDLE_S)
            self._hear()
        self._end_left()
        attempts = self._taken()
        if not attempts:
            if self._mine:
                self._resolve()
            return
        self._begin(attempts)
        self._add(attempts)
        self._work(attempts)
        ends = [each for each in attempts if not each.is_left]
        self._end(ends)
        self._bother(ends)

    def _taken(self) -> list[Attempt]:
        chance, attempts = self._chance, list[Attempt]()
        while len(attempts) < self._at_once and self._waiting:
            count = min(len(self._waiting), chance.choice((1, 1, 2, 3)))
            inputs = [self._waiting.popleft() for _ in range(count)]
            luck = chance.random()
            if luck < 0.01:
                attempts.append(
                    Attempt(self._number, inputs, commit=False, ttl_ms=_LEFT_TTL_MS, is_left=True)
                )
                continue
            attempts.append(Attempt(self._number, inputs, commit=luck < 0.82, ttl_ms=_TTL_MS))
            if luck > 0.97:
                # Another one takes the first of them too.
                attempts.append(Attempt(self._number, inputs[:1], commit=True, ttl_ms=_TTL_MS))
                self._history.figures["rivals"] += 1
        chance.shuffle(attempts)
        self._history.attempts += attempts
        return attempts

    def _begin(self, attempts: list[Attempt]) -> None:
        begun: dict[int, Attempt] = {}
        for at, attempt in enumerate(attempts):
            number = at % COORDINATORS
            begun[
                self._links.ask(
                    self._coordinator(number),
                    CommandType.NEW_TXN,
                    txn_ttl_seconds=attempt.ttl_ms,
                    tc_id=number,
                )
            ] = attempt
        try:
            self._links.until(lambda: begun.keys() <= self._links.answers.keys())
        finally:
            # Those that it has heard of are its own; one that it has not heard of ends by its time.
            passing = False
            for request, attempt in begun.items():
                said = self._links.answers.pop(request, None)
                if said is None or said.newTxnResponse.HasField("error"):
                    attempt.committed = False
                    passing = True
                    continue
                attempt.txn = said.newTxnResponse.txnid_most_bits, said.newTxnResponse.txnid_least_bits
                if attempt.is_left:
                    self._left.append((time.monotonic() + _LEFT_S, attempt))
                else:
                    self._mine.append(attempt)
        self._hear()
        if passing:
            raise LostError("a coordinator took no transaction")

    def _add(self, attempts: list[Attempt]) -> None:
        topics, links, asked = self._topics, self._links, list[int]()
        for attempt in attempts:
            ids, to = _ids(attempt), self._coordinator(_txn(attempt)[0])
            asked.append(links.ask(to, CommandType.ADD_PARTITION_TO_TXN, partitions=list(topics.outs), **ids))
            wanted = [pb.Subscription(topic=topics.source, subscription=SUBSCRIPTION)]
            asked.append(links.ask(to, CommandType.ADD_SUBSCRIPTION_TO_TXN, subscription=wanted, **ids))
        errors = self._results(asked)
        for at, attempt in enumerate(attempts):
            if error := errors[2 * at] or errors[2 * at + 1]:
                attempt.is_refused = True
                if not attempt.is_left:
                    self._wrong(f"T19: {attempt.txn} was open and could not be added to: {_name(error)}")

    def _work(self, attempts: list[Attempt]) -> None:
        acks: dict[int, Attempt] = {}
        sent: dict[tuple[int, int], Attempt | None] = {}
        source = self._links.to(self._topics.source)
        for attempt in attempts:
            for position, value in attempt.inputs:
                for out in self._publish(str(value), attempt.txn):
                    sent[out] = attempt
                self._sends.append((attempt, str(value)))
                acks[self._ack(source, position, attempt)] = attempt
        body = f"plain {self._number}.{self._sequence}"
        self._history.plain |= {(number, body): "unknown" for number in range(2)}
        plain = self._publish(body, None)
        self._sends.append((None, body))
        sent |= dict.fromkeys(plain)
        refusals = self._links.refusals

        def told() -> bool:
            self._hear()
            return (
                sent.keys() <= self._receipts | refusals.keys() and acks.keys() <= self._links.answers.keys()
            )

        self._links.until(told)
        for out in plain:
            self._history.plain[out[0], body] = "stored" if out in self._receipts else "refused"
        for out in sent.keys() & refusals.keys():
            attempt_of = sent[out]
            self._history.figures["SENDs refused"] += 1
            if attempt_of is not None:
                attempt_of.is_refused = True
            del refusals[out]
        self._receipts -= sent.keys()
        for attempt, error in zip(acks.values(), self._results(acks), strict=True):
            if error is not None:
                attempt.is_refused = True
                self._history.figures[f"ACKs refused by {_name(error)}"] += 1

    def _publish(self, body: str, txn: TxnBits | None) -> list[tuple[int, int]]:
        """To both outputs: producer and sequence of each."""
        self._sequence += 1
        metadata = pb.MessageMetadata(producer_name="w", sequence_id=self._sequence, publish_time=1)
        if txn is not None:
            metadata.txnid_most_bits, metadata.txnid_least_bits = txn
        entry = build_entry(metadata, body.encode())
        for number, topic in enumerate(self._topics.outs):
            self._links.to(topic).send(encode_send(ProducerId(number), self._sequence, 1, entry, txn=txn))
        return [(number, self._sequence) for number in range(2)]

    def _ack(self, source: Any, position: Position, attempt: Attempt) -> int:
        return self._links.ask(
            source,
            CommandType.ACK,
            consumer_id=_CONSUMER,
            ack_type=pb.CommandAck.Individual,
            message_id=[message_id_data(position)],
            **_ids(attempt),
        )

    # -- their ends --------------------------------------------------------------------------------

    def _end(self, attempts: list[Attempt], *, opposite: bool = False) -> None:
        """Ends them as they are to end. What has ended is asked for again, or for the opposite."""
        asked = []
        for attempt in attempts:
            commit = attempt.commit and not attempt.is_refused
            if attempt.committed is not None:
                commit = attempt.committed
            elif attempt.is_left:
                commit = True  # it must be too late
            attempt.is_ending = attempt.is_ending or (commit and not opposite)
            action = pb.COMMIT if commit is not opposite else pb.ABORT
            to = self._coordinator(_txn(attempt)[0])
            asked.append(self._links.ask(to, CommandType.END_TXN, txn_action=action, **_ids(attempt)))
        for attempt, error in zip(attempts, self._results(asked), strict=True):
            commit = (attempt.commit and not attempt.is_refused) or attempt.is_left
            if attempt.committed is not None:
                commit = attempt.committed
            if opposite:
                if error != pb.ServerError.InvalidTxnStatus:
                    self._wrong(f"T6: {attempt.txn} ended, and its opposite was answered by {_name(error)}")
            elif error in (None, pb.ServerError.InvalidTxnStatus):
                now_s = time.monotonic()
                self._history.told(attempt, committed=commit is (error is None), now_s=now_s)
            else:
                self._wrong(f"T5: the end of {attempt.txn} was answered by {_name(error)}")
                attempt.committed = attempt.committed or False
        self._mine = [each for each in self._mine if each.committed is None]

    def _resolve(self) -> None:
        """Ends what was left open: a commit that was asked for is asked for again, the rest is aborted."""
        for attempt in self._mine:
            attempt.is_refused = attempt.is_refused or not attempt.is_ending
        if self._mine:
            self._end(self._mine)

    def _end_left(self) -> None:
        """The time of those is over that no client has ended."""
        while self._left and self._left[0][0] < time.monotonic():
            attempt = self._left[0][1]
            self._end([attempt])
            self._left.popleft()
            self._history.figures["ended by their time"] += 1
            if attempt.committed:
                self._wrong(f"T8: {attempt.txn} could be committed after its time")

    def _bother(self, ended: list[Attempt]) -> None:
        """What comes after an end."""
        chance = self._chance
        if ended and chance.random() < 0.5:
            self._end(chance.sample(ended, min(2, len(ended))))
        if ended and chance.random() < 0.3:
            self._end([chance.choice(ended)], opposite=True)
            self._history.figures["opposites refused"] += 1
        if ended and chance.random() < 0.3:
            self._publish_late(chance.choice(ended))
        if ended and self._waiting and chance.random() < 0.3:
            late = self._ack(self._links.to(self._topics.source), self._waiting[0][0], chance.choice(ended))
            self._history.figures["late ACKs"] += 1
            if self._results([late]) == [None]:
                self._wrong("T7: an acknowledgement was taken after the end")

    def _publish_late(self, attempt: Attempt) -> None:
        body = f"late {self._number}.{self._sequence}"
        self._history.plain |= {(number, body): "unknown" for number in range(2)}
        outs = self._publish(body, attempt.txn)
        self._history.figures["late SENDs"] += len(outs)

        def told() -> bool:
            self._hear()
            return all(out in self._receipts or out in self._links.refusals for out in outs)

        self._links.until(told)
        for out in outs:
            if self._links.refusals.pop(out, None) is None:
                self._wrong(f"T7: a message was taken after the end of {attempt.txn}")
            else:
                self._history.plain[out[0], body] = "refused"


def _txn(attempt: Attempt) -> TxnBits:
    assert attempt.txn is not None
    return attempt.txn


def _ids(attempt: Attempt) -> dict[str, int]:
    most, least = _txn(attempt)
    return {"txnid_most_bits": most, "txnid_least_bits": least}


def _name(error: int | None) -> str:
    return "success" if error is None else pb.ServerError.Name(error)

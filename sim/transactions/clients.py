"""Clients of transactions, with the manners of official clients and some bad ones.

All go on on a new connection when theirs is lost. What a client does not know the end of stays in the history
as unknown, and its transaction is ended again later, or left to its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from magnetar.base.ids import ConsumerId, LedgerId, Position, ProducerId
from magnetar.broker.transactions.ids import TxnId
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.client import CommandEvent
from magnetar.wire.commands import message_id_data
from magnetar.wire.frames import FRAME_HEAD, encode_command
from magnetar.wire.messages import MessageEvent
from magnetar.wire.payload import build_batch, build_entry
from magnetar.wire.receipts import ReceiptRun
from sim.broker.client import Client
from sim.transactions.history import Acked, Attempt, History, Reading, Seek, Sent, Unit
from sim.transactions.life import Life, LifeLine
from sim.world import World

_Type = pb.BaseCommand.Type
IN: Final = "persistent://public/default/in"
OUTS: Final = (
    "persistent://public/default/a",
    "persistent://public/default/b",
    "persistent://public/default/c",
)
"""The last one keeps nothing that its only subscription has."""
WORK: Final = "work"
"""Shared subscription of IN, single messages and parts of batches."""
LINE: Final = "line"
"""Failover subscription of IN, cumulative acknowledgements."""
KEYS: Final = ("k", "l", "m")
BATCH: Final = 3
_WORD: Final = (1 << 64) - 1
_SAFE: Final = frozenset(
    (pb.TransactionConflict, pb.NotAllowedError, pb.TransactionNotFound, pb.InvalidTxnStatus)
)
"""On these an acknowledgement takes no effect, and its transaction goes on."""


class TxnLine(Protocol):
    """A connection, or several that end together."""

    closed: bool

    def say(self, *frames: pb.BaseCommand | bytes) -> None: ...

    def close(self, reason: str) -> None: ...


class Home:
    """Where clients find the broker."""

    def __init__(self, world: World, history: History) -> None:
        self.world = world
        self.history = history
        self.life: Life | None = None
        self.clients: list[TxnClient] = []
        self.unloaded: dict[str, int] = {}
        """When topics were unloaded for the last time."""

    apart = False
    """Whether coordinators and topics are at different brokers: then SEND and ADD_PARTITION_TO_TXN may
    overtake each other."""

    @property
    def now_us(self) -> int:
        return self.world.now_us

    @property
    def serves(self) -> bool:
        """Whether a client may come."""
        return self.life is not None and self.life.ready

    def may_have_dropped(self, sent: Sent, begun_us: int) -> bool:
        """Whether a broker may have dropped a message without a receipt, of a transaction that began then:
        its topic was unloaded, and its producers were sent away and send again."""
        return self.unloaded.get(sent.topic, -1) >= begun_us - 1_000_000

    def connect(self, name: str, hear: Callable[[object], None], lost: Callable[[], None]) -> TxnLine:
        """A new connection."""
        assert self.life is not None
        return LifeLine(self.life, name, hear, lost)


def _ids(txn: TxnId) -> dict[str, int]:
    return {"txnid_most_bits": txn.coordinator, "txnid_least_bits": txn.sequence}


class TxnClient(Client):
    """What all have in common."""

    def __init__(self, home: Home, name: str) -> None:
        random = home.world.random
        super().__init__(None, name, "", lambda: random.choice((0.001, 0.01, 0.05, 0.2)))  # type: ignore[arg-type]  # the home has it
        self.home, self.history, self.random = home, home.history, random
        self._sequence = 0
        self._sent: dict[int, Sent] = {}
        home.clients.append(self)

    def connected(self) -> TxnLine:  # type: ignore[override]  # as far as clients use it
        return self.home.connect(self.name, self._hear, self._wake.set)

    @property
    def up(self) -> bool:
        return self.line is not None and not self.line.closed and not self.away

    async def run(self) -> None:
        while not self.stopped:
            if self.home.serves and await self.come():
                await self.work()
            await self.rest()

    async def come(self) -> bool:
        """Opens what it needs on a new connection, here nothing; whether the broker let it."""
        return True

    async def work(self) -> None:
        """Until the connection is lost."""
        while self.up and not self.stopped:
            await self.rest()

    async def ask(self, kind: pb.BaseCommand.Type, **fields: Any) -> Any:
        """The answer; None: the connection was lost before."""
        line = self.line
        if line is None or line.closed:
            return None
        number = self.number()
        frame = pb.BaseCommand(type=kind)
        body = getattr(frame, _FIELDS[kind])
        for name, value in {"request_id": number, **fields}.items():
            if isinstance(value, (list, tuple)):
                getattr(body, name).extend(value)
            else:
                setattr(body, name, value)
        line.say(frame)
        if not await self.until(partial(self._heard_of, number, line)):
            self.violations.append(f"{self.name}: {_FIELDS[kind]} was not answered")
            line.close("no answer")
        return self._answers.pop(number, None)

    def publish(self, producer_id: int, sent: Sent, txn: TxnId | None, **metadata: Any) -> None:
        """Sends it; `sent` learns what becomes of it."""
        if self.line is None or self.line.closed:
            sent.fate = "refused"
            return
        self._sequence += 1
        self._sent[self._sequence], sent.line = sent, self.line
        head = pb.MessageMetadata(
            producer_name=self.name, sequence_id=self._sequence, publish_time=1, **metadata
        )
        if sent.key:
            head.partition_key = sent.key
        count = metadata.get("num_messages_in_batch", 1)
        payload = sent.body.encode()
        if "num_messages_in_batch" in metadata:
            payload = build_batch([(pb.SingleMessageMetadata(), payload) for _ in range(count)])
        command = pb.CommandSend(
            producer_id=ProducerId(producer_id), sequence_id=self._sequence, num_messages=count
        )
        if txn is not None:
            command.txnid_most_bits, command.txnid_least_bits = txn
        body = pb.BaseCommand(type=_Type.SEND, send=command).SerializeToString()
        entry = build_entry(head, payload)
        self.line.say(FRAME_HEAD.pack(4 + len(body) + len(entry), len(body)) + body + entry)

    def heard(self, event: object) -> None:
        if isinstance(event, ReceiptRun):
            for number, ledger, entry in zip(
                event.sequence_ids, event.ledger_ids, event.entry_ids, strict=True
            ):
                sent = self._sent.pop(number, None)
                if sent is not None:
                    if sent.fate == "late":
                        self.violations.append(f"{sent.body} was taken, though its transaction had ended")
                    sent.fate, sent.position = "stored", Position(ledger, entry)
        elif isinstance(event, CommandEvent) and event.type == _Type.SEND_ERROR:
            error = event.command.send_error
            sent = self._sent.pop(error.sequence_id, None)
            if sent is not None and error.error == pb.NotAllowedError:
                sent.fate = "refused"
            elif sent is not None:
                sent.fate = "failed"

    def producers(self, *topics: str) -> list[Any]:
        return [
            pb.CommandProducer(
                topic=topic, producer_id=number, request_id=0, producer_name=f"{self.name}-{number}"
            )
            for number, topic in enumerate(topics)
        ]

    async def produces(self, *topics: str) -> bool:
        """Whether the broker takes it as a producer of all."""
        for number, topic in enumerate(topics):
            answer = await self.ask(
                _Type.PRODUCER, topic=topic, producer_id=number, producer_name=f"{self.name}-{number}"
            )
            if answer is None or isinstance(answer, pb.CommandError):
                return False
        return True

    async def subscribes(self, topic: str, name: str, kind: int, **more: Any) -> bool:
        """Whether the broker takes it as consumer 1."""
        answer = await self.ask(
            _Type.SUBSCRIBE,
            topic=topic,
            subscription=name,
            subType=kind,
            consumer_id=1,
            initialPosition=pb.CommandSubscribe.Earliest,
            **more,
        )
        return answer is not None and not isinstance(answer, pb.CommandError)

    def flow(self) -> None:
        if self.line is not None:
            self.line.say(encode_flow(ConsumerId(1), 10_000))

    def begins(self) -> None:
        """A new connection."""
        if self.line is not None:
            self.line.close("comes back")
        self.away = False
        # What was under way stays unknown.
        self._sent.clear()
        self.line = self.connected()  # type: ignore[assignment]  # as far as clients use it

    async def acknowledges(self, attempt: Attempt, acked: Acked, *, plain: bool = False) -> None:
        """In the transaction, or outside of all."""
        line = self.line
        if line is None or line.closed:
            acked.fate = "refused"
            return
        number = self.number()
        command = pb.CommandAck(consumer_id=1, request_id=number, ack_type=pb.CommandAck.Individual)
        if not plain:
            assert attempt.txn is not None
            command.txnid_most_bits, command.txnid_least_bits = attempt.txn
        if acked.upto is not None:
            command.ack_type = pb.CommandAck.Cumulative
            command.message_id.append(message_id_data(acked.upto))
        for position in sorted({position for position, _ in acked.units}):
            data = message_id_data(position)
            indexes = {index for at, index in acked.units if at == position}
            size = self.sizes[position]
            if len(indexes) < size:
                # As clients do: some say the size, some do not.
                data.ack_set.append(((1 << size) - 1) & ~sum(1 << index for index in indexes))
                if self.random.random() < 0.5:
                    data.batch_size = size
            elif size > 1:
                acked.rests.add(position)
            command.message_id.append(data)
        acked.asked_us = self.home.now_us
        attempt.acks.append(acked)
        line.say(encode_command(pb.BaseCommand(type=_Type.ACK, ack=command)))
        if not await self.until(partial(self._heard_of, number, line)):
            self.violations.append(f"{self.name}: an acknowledgement was not answered")
        answer = self._answers.pop(number, None)
        if answer is None:
            return
        if not answer.HasField("error"):
            acked.fate, acked.told_us = "stored", self.home.now_us
        elif answer.error in _SAFE:
            acked.fate = "refused"
        else:
            attempt.troubled = True

    sizes: dict[Position, int]
    """Messages of entries that it got."""

    async def ends(self, attempt: Attempt, *, commit: bool) -> bool:
        """Whether the broker said how it ended."""
        assert attempt.txn is not None
        if commit:
            attempt.commit_us = min(attempt.commit_us, self.home.now_us)
        else:
            attempt.abort_us = min(attempt.abort_us, self.home.now_us)
        action = pb.COMMIT if commit else pb.ABORT
        answer = await self.ask(_Type.END_TXN, txn_action=action, **_ids(attempt.txn))
        if answer is None:
            return False
        if not answer.HasField("error"):
            self.history.ended(attempt, committed=commit)
        elif answer.error == pb.InvalidTxnStatus:
            self.history.ended(attempt, committed=not commit)
        elif answer.error == pb.TransactionNotFound:
            self.violations.append(f"{attempt.name} is not known any more")
        else:
            return False
        return True


_FIELDS: Final = {
    _Type.PRODUCER: "producer",
    _Type.SUBSCRIBE: "subscribe",
    _Type.SEEK: "seek",
    _Type.GET_LAST_MESSAGE_ID: "getLastMessageId",
    _Type.NEW_TXN: "newTxn",
    _Type.ADD_PARTITION_TO_TXN: "addPartitionToTxn",
    _Type.ADD_SUBSCRIPTION_TO_TXN: "addSubscriptionToTxn",
    _Type.END_TXN: "endTxn",
}


class PlainClient(TxnClient):
    """Publishes outside of transactions, batches too; sometimes it names another client's transaction."""

    def __init__(self, home: Home, name: str, topic: str) -> None:
        super().__init__(home, name)
        self._to = topic
        self._count = 0
        self.units: dict[str, int] = {}
        """Messages of an entry, by its body."""

    async def come(self) -> bool:
        self.begins()
        return await self.produces(self._to)

    async def work(self) -> None:
        while self.up and not self.stopped:
            await self.rest()
            self._count += 1
            sent = Sent(self._to, f"{self.name}/{self._count}", self.random.choice(KEYS))
            self.history.plain.append(sent)
            more: dict[str, Any] = {}
            if self._to == IN and self.random.random() < 0.3:
                more["num_messages_in_batch"] = BATCH
            elif self.random.random() < 0.05 and self.history.attempts:
                txn = self.random.choice(self.history.attempts).txn
                if txn is not None:
                    more.update(_ids(txn))
            self.publish(0, sent, None, **more)


class Worker(TxnClient):
    """Takes from IN and writes to OUTS, several transactions at once."""

    subscription = WORK

    def __init__(self, home: Home, name: str) -> None:
        super().__init__(home, name)
        self.available: set[Unit] = set()
        self.sizes = {}
        self.unresolved: list[Attempt] = []
        self._count = 0

    async def come(self) -> bool:
        self.begins()
        self.available.clear()
        if not (await self.produces(*OUTS) and await self.subscribes(IN, WORK, pb.CommandSubscribe.Shared)):
            return False
        self.flow()
        return True

    def heard(self, event: object) -> None:
        super().heard(event)
        if isinstance(event, MessageEvent):
            metadata = pb.MessageMetadata.FromString(event.entry[event.metadata_at : event.payload_at])
            size = metadata.num_messages_in_batch
            self.sizes[event.position] = size
            word = event.ack_set[0] if event.ack_set else _WORD
            units = {(event.position, index) for index in range(size) if word >> index & 1}
            for unit in sorted(units):
                self.history.delivered(self.subscription, unit)
            self.available |= units

    async def work(self) -> None:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._transactions()) for _ in range(2)]
        await asyncio.wait(tasks)
        for task in tasks:
            task.result()

    async def _transactions(self) -> None:
        while self.up and not self.stopped:
            if self.unresolved and self.random.random() < 0.5:
                await self._end_again(self.unresolved.pop())
            elif self.random.random() < 0.1 and self.available:
                await self._acknowledge_plainly()
            else:
                await self._one()
            await self.rest()

    async def _end_again(self, attempt: Attempt) -> None:
        if not attempt.ending and self.random.random() < 0.5:
            return
        if not await self.ends(attempt, commit=attempt.commit_us < NEVER_US):
            self.unresolved.append(attempt)

    async def _acknowledge_plainly(self) -> None:
        units = self._take()
        attempt = Attempt(f"{self.name}'s acknowledgement of {units}", 0, self.home.now_us)
        attempt.commit_us = self.home.now_us
        acked = Acked(WORK, units)
        self.history.attempts.append(attempt)
        await self.acknowledges(attempt, acked, plain=True)
        # It may be forgotten at a crash, also when it was answered.
        attempt.committed, attempt.told_us, acked.fate = True, acked.told_us, "unknown"

    def _take(self) -> frozenset[Unit]:
        count = min(len(self.available), self.random.choice((0, 1, 1, 2, 3)))
        taken = frozenset(self.random.sample(sorted(self.available), count))
        if self.random.random() < 0.9:
            # Else another transaction of it may try the same.
            self.available -= taken
        return taken

    async def _one(self) -> None:
        random, home = self.random, self.home
        self._count += 1
        ttl_us = random.choice((300_000, 2_000_000, 20_000_000, 20_000_000))
        attempt = Attempt(f"{self.name}.{self._count}", ttl_us, home.now_us)
        self.history.attempts.append(attempt)
        answer = await self.ask(_Type.NEW_TXN, tc_id=random.randrange(2), txn_ttl_seconds=ttl_us // 1_000)
        if answer is None or answer.HasField("error"):
            # No client knows of it: it ends by its timeout.
            attempt.committed = False
            return
        txn = attempt.txn = TxnId(answer.txnid_most_bits, answer.txnid_least_bits)
        self.unresolved.append(attempt)
        outs = random.sample(range(len(OUTS)), random.choice((1, 2, 3)))
        if random.random() < 0.05:
            self._send(attempt, outs[0], fate="late")  # the topic was not added
            early, line = attempt.sends.pop(), self.line
            if self.home.apart:
                await self.until(lambda: line is None or line.closed or early.fate != "late")
        added = await self.ask(
            _Type.ADD_PARTITION_TO_TXN, partitions=[OUTS[number] for number in outs], **_ids(txn)
        )
        if added is None or added.HasField("error"):
            return
        units = self._take()
        if units:
            wanted = [pb.Subscription(topic=IN, subscription=WORK)]
            answer = await self.ask(_Type.ADD_SUBSCRIPTION_TO_TXN, subscription=wanted, **_ids(txn))
            if answer is None or answer.HasField("error"):
                return
        for _ in range(random.choice((1, 2, 3, 5))):
            self._send(attempt, random.choice(outs))
            if random.random() < 0.5:
                await self.rest()
        for each in self._divided(units):
            await self.acknowledges(attempt, Acked(WORK, each))
        if random.random() < 0.8:
            line = self.line
            assert line is not None
            await self.until(lambda: line.closed or all(sent.fate != "unknown" for sent in attempt.sends))
        if random.random() < 0.15:
            return  # it ends by its timeout
        await self._finish(attempt)

    def _divided(self, units: frozenset[Unit]) -> list[frozenset[Unit]]:
        """In one command or in several."""
        if self.random.random() < 0.7 or len(units) < 2:
            return [units] if units else []
        return [frozenset((unit,)) for unit in sorted(units)]

    def _send(self, attempt: Attempt, number: int, *, fate: str = "unknown") -> None:
        body = f"{attempt.name}/{len(attempt.sends)}"
        key = self.random.choice(KEYS)
        sent = Sent(OUTS[number], body if fate == "unknown" else f"{body}-{fate}", key, fate)
        attempt.sends.append(sent)
        self.publish(number, sent, attempt.txn)

    async def _finish(self, attempt: Attempt) -> None:
        random, home = self.random, self.home
        commit = random.random() < 0.75
        line = self.line
        if not await self.ends(attempt, commit=commit):
            return
        silent = [
            sent
            for sent in attempt.sends
            if sent.fate == "unknown"
            and sent.line is line
            and not home.may_have_dropped(sent, attempt.begun_us)
        ]
        if attempt.committed and silent and self.up and self.line is line:
            self.violations.append(f"{attempt.name} is committed before {silent[0].body} has its receipt")
        self.unresolved = [each for each in self.unresolved if each is not attempt]
        if random.random() < 0.2:
            await self.rest()
            await self.ends(
                attempt, commit=commit if random.random() < 0.6 or attempt.committed is None else not commit
            )
        if random.random() < 0.2:
            self._send(attempt, random.randrange(len(OUTS)), fate="late")
            self.history.plain.append(attempt.sends.pop())
        if random.random() < 0.2 and self.available:
            late = Acked(WORK, frozenset((random.choice(sorted(self.available)),)))
            await self.acknowledges(attempt, late)
            attempt.acks = [each for each in attempt.acks if each is not late]
            if late.fate == "stored":
                self.violations.append(f"{attempt.name} took an acknowledgement after its end")


NEVER_US: Final = 1 << 62


class Liner(TxnClient):
    """Acknowledges all up to a message, in transactions."""

    def __init__(self, home: Home, name: str) -> None:
        super().__init__(home, name)
        self.sizes = {}
        self._last: Position | None = None
        self._got: list[Position] = []
        self._count = 0
        self.unresolved: list[Attempt] = []

    async def come(self) -> bool:
        self.begins()
        self._got = []
        if not (
            await self.produces(OUTS[0]) and await self.subscribes(IN, LINE, pb.CommandSubscribe.Failover)
        ):
            return False
        self.flow()
        return True

    def heard(self, event: object) -> None:
        super().heard(event)
        if isinstance(event, MessageEvent):
            self.history.delivered(LINE, (event.position, 0))
            self._got.append(event.position)

    async def work(self) -> None:
        while self.up and not self.stopped:
            await self.rest()
            if not self._got:
                continue
            self._count += 1
            attempt = Attempt(f"{self.name}.{self._count}", 5_000_000, self.home.now_us)
            self.history.attempts.append(attempt)
            answer = await self.ask(_Type.NEW_TXN, tc_id=0, txn_ttl_seconds=5_000)
            if answer is None or answer.HasField("error"):
                attempt.committed = False
                continue
            txn = attempt.txn = TxnId(answer.txnid_most_bits, answer.txnid_least_bits)
            wanted = [pb.Subscription(topic=IN, subscription=LINE)]
            answer = await self.ask(_Type.ADD_SUBSCRIPTION_TO_TXN, subscription=wanted, **_ids(txn))
            if answer is None or answer.HasField("error") or not self._got:
                continue
            acked = Acked(LINE, frozenset(), self.random.choice(self._got))
            await self.acknowledges(attempt, acked)
            commit = self.random.random() < 0.7
            if await self.ends(attempt, commit=commit) and attempt.committed and acked.fate == "stored":
                self._got = [each for each in self._got if acked.upto is None or each > acked.upto]


class Follower(TxnClient):
    """Acknowledges at once what it gets; its topic keeps nothing behind it."""

    def __init__(self, home: Home, name: str, topic: str) -> None:
        super().__init__(home, name)
        self._from = topic
        self.sizes = {}
        self.got: dict[str, Position] = {}

    async def come(self) -> bool:
        self.begins()
        if not await self.subscribes(self._from, "follower", pb.CommandSubscribe.Exclusive):
            return False
        self.flow()
        return True

    def heard(self, event: object) -> None:
        super().heard(event)
        if isinstance(event, MessageEvent) and self.line is not None:
            self.got[event.entry[event.payload_at :].decode()] = event.position
            command = pb.CommandAck(
                consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[message_id_data(event.position)]
            )
            self.line.say(encode_command(pb.BaseCommand(type=_Type.ACK, ack=command)))


class Reader(TxnClient):
    """Reads a topic from its first message on, again and again; what it got stays true for ever."""

    def __init__(self, home: Home, name: str, topic: str, *, compacted: bool = False) -> None:
        super().__init__(home, name)
        self.topic, self._compacted = topic, compacted
        self.reading = Reading(topic, name)
        self._rounds = 0

    async def come(self) -> bool:
        self.begins()
        self._rounds += 1
        self.reading = Reading(self.topic, f"{self.name} ({self._rounds})")
        first = message_id_data(Position(LedgerId(-1), -1))
        kind = pb.CommandSubscribe.Exclusive
        answer = await self._subscribed(kind, first)
        if answer is None or isinstance(answer, pb.CommandError):
            return False
        if not self._compacted:
            self.history.readings.append(self.reading)
        last = await self.ask(_Type.GET_LAST_MESSAGE_ID, consumer_id=1)
        if last is None or isinstance(last, pb.CommandError):
            return False
        self.flow()
        at = last.last_message_id
        if at.entryId < 1 << 63:
            end = Position(LedgerId(at.ledgerId), at.entryId)
            line = self.line
            assert line is not None
            seen = self.reading.seen
            if not await self.until(lambda: line.closed or self.away or bool(seen and seen[-1][0] >= end)):
                self.violations.append(f"{self.name}: {end} is the last message, and does not come")
        return True

    async def _subscribed(self, kind: int, first: pb.MessageIdData) -> Any:
        line = self.line
        assert line is not None
        number = self.number()
        body = pb.CommandSubscribe(
            topic=self.topic,
            subscription=f"reader {self.name} {self._rounds}",
            subType=kind,  # type: ignore[arg-type]  # protobuf's enums are integers
            consumer_id=1,
            request_id=number,
            durable=self._compacted,
            read_compacted=self._compacted,
            initialPosition=pb.CommandSubscribe.Earliest,
        )
        if not self._compacted:
            body.start_message_id.CopyFrom(first)
        line.say(pb.BaseCommand(type=_Type.SUBSCRIBE, subscribe=body))
        if not await self.until(partial(self._heard_of, number, line)):
            self.violations.append(f"{self.name}: its opening was not answered")
        return self._answers.pop(number, None)

    async def work(self) -> None:
        for _ in range(self.random.choice((0, 3, 30))):
            if not self.up or self.stopped:
                return
            await self.rest()
        if self.line is not None and not self.stopped:
            self.line.close("has seen enough")

    def heard(self, event: object) -> None:
        super().heard(event)
        if isinstance(event, MessageEvent):
            self.reading.seen.append((event.position, _body_of(event)))


def _body_of(event: MessageEvent) -> str:
    """The body of a message; of a batch the body that all its messages share."""
    payload = event.entry[event.payload_at :]
    metadata = pb.MessageMetadata.FromString(event.entry[event.metadata_at : event.payload_at])
    if not metadata.HasField("num_messages_in_batch"):
        return payload.decode()
    size = int.from_bytes(payload[:4], "big")
    single = pb.SingleMessageMetadata.FromString(payload[4 : 4 + size])
    return payload[4 + size : 4 + size + single.payload_size].decode()


async def seek_to_the_first(worker: Worker) -> None:
    """Through a consumer: everything of WORK comes again."""
    seek = Seek(WORK, worker.home.now_us)
    worker.history.seeks.append(seek)
    answer = await worker.ask(_Type.SEEK, consumer_id=1, message_publish_time=1)
    if answer is not None and not isinstance(answer, pb.CommandError):
        seek.told_us = worker.home.now_us

"""The transactions of one of several brokers: coordinators that it serves, and topics of any coordinator.

Driver. Coordinator N is served by the broker that has partition N of the assignment topic. It and the
brokers of topics tell each other everything through the metadata store: the header decides, and each topic
has a value of its part (`mirror.py`). So what one of them says is durable when another hears of it, and no
broker takes commands of another one.

    header OPEN ──END_TXN──▶ closing ──all parts closed──▶ decided ──all parts gone──▶ an outcome

Two brokers that believe that they serve a coordinator decide nothing twice: each write of a header is
conditional. The one that finds that another one wrote gives its coordinator up and reads everything anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MagnetarError, MetadataError
from magnetar.base.names import TopicName
from magnetar.broker.errors import (
    CoordinatorNotFoundError,
    NotAllowedError,
    RefusedError,
    TransactionStateError,
)
from magnetar.broker.transactions.acks import TxnAcks
from magnetar.broker.transactions.coordinator import RESERVED, Coordinator, Who
from magnetar.broker.transactions.discovery import ASSIGN
from magnetar.broker.transactions.giving_up import give_up
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.kept import KeptTransactions
from magnetar.broker.transactions.kept_parts import KeptParts, wish_at
from magnetar.broker.transactions.outcomes import PAGE
from magnetar.broker.transactions.part_waits import PartWaits
from magnetar.broker.transactions.participants import Participants
from magnetar.broker.transactions.recovery import left, left_by
from magnetar.broker.transactions.shared_headers import SharedHeaders
from magnetar.broker.transactions.topic_side import TopicSide
from magnetar.broker.transactions.transaction import Transaction, text_bytes
from magnetar.broker.transactions.transactions import Transactions
from magnetar.broker.transactions.txn_rules import TXN_RULES, TxnRules
from magnetar.metadata import keys
from magnetar.metadata.store import Change, Notification
from magnetar.runtime.tasks import SingleFlight, pause

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort
    from magnetar.broker.subscription.any_subscription import AttachedConsumer
    from magnetar.broker.topic.producer import Producer
    from magnetar.broker.topic.topic import Topic
    from magnetar.wire.events import AckEvent, SendRun, TxnBits

_log = logging.getLogger("magnetar.broker.transactions")

_ROUND_S: Final = 1.0
_HEADERS_EVERY: Final = 5
"""Rounds after which headers that another process wrote are looked for."""
_FOLLOWED_S: Final = 10.0
"""Longest wait of END_TXN for topics to have done what was decided: then it is answered all the same."""


class SharedTransactions(Transactions):
    """The transactions of one of several brokers."""

    _kept: KeptParts
    _resolving: Participants

    def __init__(
        self, broker: BrokerPort, rules: TxnRules = TXN_RULES, kept: KeptParts | None = None
    ) -> None:
        super().__init__(broker, rules, kept or KeptParts(broker.store))
        self.recover = self._recover
        self.take_up = self._take_up
        self._loads: SingleFlight[None] = SingleFlight()
        self._follows: SingleFlight[None] = SingleFlight(broker.tasks)  # they wait for as long as topics take
        self._headers = SharedHeaders(self._kept, self._check_current, self._decided, self._give_up)
        self._waits = PartWaits(broker, self._kept, self._resolving.knocked, rules)
        self._side = TopicSide(broker, self._kept, self._resolving, self.abort_of, rules)
        self._rounds = 0
        self._shared = False

    def _made(self, kept: KeptTransactions) -> tuple[KeptParts, Participants]:
        assert isinstance(kept, KeptParts)
        follow, give_up = self._follow, self._give_up
        return kept, Participants(self._broker, kept, self.abort_of, self._rules, follow, give_up)

    # -- start -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Coordinators are read when this broker gets them. Raises MetadataError, NotAllowedError."""
        if not await self._kept.share(mark=self.enabled):
            raise NotAllowedError(
                "the metadata holds transactions of a standalone server that have not ended",
                remedy="start it with magnetar standalone and let them end, then start brokers",
            )
        self._shared = await self._kept.shared() or await self._kept.any_hidden()
        self._resolving.begin(self._broker.new_producer_name())
        self._waits.begin()
        self._broker.store.watch(keys.TRANSACTION_WISHES, self._wish_made)
        if self.enabled:
            await self.discovery.count()
            self._broker.tasks.every(_ROUND_S, self.round)

    async def round(self) -> None:
        """Takes up coordinators that came here, gives up those that left, and looks for what was missed."""
        self._rounds += 1
        self._resolving.drop_unloaded()
        for number in range(self.discovery.known):
            if not self._is_here(number):
                self._give_up(number)
                continue
            try:
                coordinator = await self._serve(number)
                if self._rounds % _HEADERS_EVERY == 0:
                    await self._look_for_headers(coordinator)
            except MagnetarError as error:
                # The next round tries again.
                _log.info("coordinator %d: %s", number, error)
        if self._rounds % _HEADERS_EVERY == 0:
            await self._waits.wake_coordinators(self.discovery.known)

    # -- coordinators ------------------------------------------------------------------------------

    def _is_here(self, number: int) -> bool:
        owners = self._broker.owners
        return owners is not None and owners.has(ASSIGN.with_partition(number))

    async def connect(self, number: int) -> None:
        self._check_enabled()
        if number >= await self.discovery.count():
            raise CoordinatorNotFoundError(f"there is no transaction coordinator {number}")
        await self._serve(number)

    async def _serve(self, number: int) -> Coordinator:
        """The coordinator, which this broker serves. Raises CoordinatorNotFoundError, MetadataError."""
        self._check_enabled()
        owners = self._broker.owners
        assert owners is not None
        try:
            await owners.admit(ASSIGN.with_partition(number))
        except RefusedError as error:
            self._give_up(number)
            raise CoordinatorNotFoundError(str(error)) from error
        if number not in self.coordinators:
            await self._loads.run(number, lambda: self._load(number))
        return self._coordinator(number)

    def _coordinator(self, number: int) -> Coordinator:
        coordinator = self.coordinators.get(number)
        if coordinator is None or not self._is_here(number):
            raise CoordinatorNotFoundError(f"coordinator {number} is not served here; look it up again")
        return coordinator

    async def _load(self, number: int) -> None:
        open_max, generation = self._broker.config.transactions_open_max, self._kept.read_anew(number)
        coordinator = await left_by(self._kept, number, open_max=open_max, clock=self._broker.clock)
        coordinator.generation = generation
        if not self._is_here(number):
            raise CoordinatorNotFoundError(f"coordinator {number} went to another broker meanwhile")
        self.coordinators[number] = coordinator
        for txn in list(coordinator.transactions.values()):
            self._taken_over(txn)
        for txn in coordinator.due(self._broker.clock.monotonic_ms()):
            # Before a client can ask for a commit that comes too late.
            coordinator.counts.timed_out += 1
            txn.ending, txn.reason = TxnState.ABORTED, f"its time of {txn.ttl_ms} ms was over"
            self._time_over(txn)
        self._deadlines.set_for(coordinator)
        _log.info("coordinator %d is here, with %d transactions", number, len(coordinator.transactions))
        for id_ in await self._kept.wishes(number):
            self._broker.tasks.spawn(self._grant(id_))

    def _taken_over(self, txn: Transaction) -> None:
        self._headers.taken_over(txn)
        if txn.state is not TxnState.OPEN:
            self._follow(txn)

    def _give_up(self, number: int) -> None:
        """Another broker has it, or wrote what this one did not know: nothing more is decided here."""
        coordinator = self.coordinators.pop(number, None)
        if coordinator is None:
            return
        _log.info("coordinator %d is given up", number)
        self._resolving.forget_resolved(number)
        for txn in coordinator.transactions.values():
            self._headers.forget(txn.id)
            self._waits.wake(txn.id)

    def _is_current(self, txn: Transaction) -> bool:
        coordinator = self.coordinators.get(txn.id.coordinator)
        return coordinator is not None and coordinator.transactions.get(txn.id.sequence) is txn

    def _check_current(self, txn: Transaction) -> None:
        if not self._is_current(txn):
            number = txn.id.coordinator
            raise CoordinatorNotFoundError(f"coordinator {number} is not served here; look it up again")

    async def _look_for_headers(self, coordinator: Coordinator) -> None:
        """A former owner may have begun transactions after this one had read all."""
        for sequence in await self._kept.begun(coordinator.number):
            if sequence not in coordinator.transactions and sequence not in coordinator.unknown:
                await self._adopt(coordinator, TxnId(coordinator.number, sequence))

    async def _adopt(self, coordinator: Coordinator, id_: TxnId) -> None:
        """Takes up a transaction that a former owner began late. Raises CoordinatorNotFoundError when the
        outcome of one may be stored that is not known here."""
        sequence = id_.sequence
        if sequence in coordinator.transactions or coordinator.outcomes.of(sequence) is not None:
            return
        found = await self._kept.latest_header(id_)
        if self.coordinators.get(coordinator.number) is not coordinator:
            raise CoordinatorNotFoundError("this coordinator was given up; look it up again")
        if sequence in coordinator.transactions or sequence in coordinator.unknown:
            return
        if found is None:
            if await self._kept.overtaken(coordinator.number, sequence // PAGE):
                self._give_up(coordinator.number)
                raise CoordinatorNotFoundError("another broker has ended transactions; ask again")
            return
        clock, next_sequence = self._broker.clock, coordinator.next_sequence
        if (txn := left(coordinator, id_, *found)) is None:
            return
        coordinator.recovered(txn, wall_ms=clock.now_ms(), now_ms=clock.monotonic_ms())
        # Its number may be of a range that another process has reserved.
        coordinator.next_sequence = next_sequence
        self._taken_over(txn)
        self._deadlines.set_for(coordinator)

    async def begin(self, number: int, owner: str, ttl_ms: int) -> TxnId:
        await self._serve(number)
        return await super().begin(number, owner, ttl_ms)

    async def _reserve(self, coordinator: Coordinator) -> None:
        # Numbers in between are those of another process that believes to serve it.
        number = coordinator.number
        known, version = await self._kept.reserved(number)
        await self._kept.reserve(number, known + RESERVED, version)
        coordinator.next_sequence, coordinator.reserved = known, known + RESERVED

    # -- what a transaction concerns -----------------------------------------------------------------

    async def add_partitions(self, bits: TxnBits, names: Sequence[tuple[str, TopicName]], who: Who) -> None:
        coordinator = await self._serve(bits[0])
        await self._adopt(coordinator, TxnId(*bits))
        txn = coordinator.find_open(TxnId(*bits), who)
        coordinator.add_partitions(txn, [(str(name), named, None) for named, name in names])
        await self._save(txn)

    async def add_subscriptions(
        self, bits: TxnBits, subscriptions: Sequence[tuple[str, TopicName, str]], who: Who
    ) -> None:
        coordinator = await self._serve(bits[0])
        await self._adopt(coordinator, TxnId(*bits))
        txn = coordinator.find_open(TxnId(*bits), who)
        for named, topic, subscription in subscriptions:
            known = txn.acks.get(str(topic), {})
            if subscription not in known:
                txn.grow(text_bytes(str(topic)) + 2 * text_bytes(named) + text_bytes(subscription) + 100)
                txn.acks.setdefault(str(topic), known)[subscription] = TxnAcks()
                if named != str(topic):
                    txn.names[str(topic)] = named
                txn.changed()
        await self._save(txn)

    async def _write(self, txn: Transaction) -> None:
        await self._headers.write(txn)

    # -- ending ------------------------------------------------------------------------------------

    async def end(self, id_: TxnId, wanted: TxnState, who: Who, *, reason: str = "") -> None:
        """As with one broker. Topics have done what was decided on return, but for those that did not answer
        for a while."""
        coordinator = await self._serve(id_.coordinator)
        await self._adopt(coordinator, id_)
        try:
            await super().end(id_, wanted, who, reason=reason)
        except TransactionStateError:
            await self._end_followed(coordinator, id_)  # so that nothing is taken after this answer either
            raise
        await self._end_followed(coordinator, id_)

    async def _end_followed(self, coordinator: Coordinator, id_: TxnId) -> None:
        txn = coordinator.transactions.get(id_.sequence)
        if txn is not None and txn.unresolved:
            with contextlib.suppress(TimeoutError):  # a topic is late: it does it before it serves
                async with asyncio.timeout(_FOLLOWED_S):
                    await self._follows.run(txn, lambda: self._followed(txn))

    async def _end_or_repeat(self, coordinator: Coordinator, txn: Transaction) -> None:
        self._check_current(txn)
        await super()._end_or_repeat(coordinator, txn)

    async def _end(self, coordinator: Coordinator, txn: Transaction) -> None:
        if txn.ending is TxnState.COMMITTED and txn.verdict is None and txn.topics:
            if not txn.closing:
                txn.closing = True
                txn.changed()
            await self._save(txn)
            until_ms, check = txn.deadline_ms + 1_000 * _FOLLOWED_S, self._check_current
            if txn.state is TxnState.OPEN and not await self._waits.closed(txn, check, until_ms):
                txn.ending, txn.reason = TxnState.ABORTED, "a message of it could not be stored"
        if txn.state is TxnState.OPEN:
            coordinator.decide(txn)
            await self._save(txn)

    # -- after the decision --------------------------------------------------------------------------

    def _follow(self, txn: Transaction) -> None:
        """Waits until every topic has done what was decided; then the header is not needed any more."""
        self._broker.tasks.spawn(self._follows.run(txn, lambda: self._followed(txn)))

    async def _followed(self, txn: Transaction) -> None:
        while self._is_current(txn):
            try:
                await self._waits.gone(txn, self._check_current)
                break
            except MetadataError as error:
                _log.warning("transaction %s waits for its topics: %s", txn.id, error)
                await pause(_ROUND_S)
            except RefusedError:
                return  # the coordinator was given up: another one waits for them
        if self._is_current(txn):
            self._headers.forget(txn.id)
            self._resolving.over(txn)

    # -- wishes of topics' brokers -------------------------------------------------------------------

    def _wish_made(self, notification: Notification) -> None:
        if notification.change is not Change.CHILDREN_CHANGED and notification.change is not Change.DELETED:
            id_ = wish_at(notification.path)
            if id_ is not None and id_.coordinator in self.coordinators:
                self._broker.tasks.spawn(self._grant(id_))

    async def _grant(self, id_: TxnId) -> None:
        """Aborts the transaction, unless its end has begun."""
        try:
            coordinator = await self._serve(id_.coordinator)
            await self._adopt(coordinator, id_)
            txn = coordinator.transactions.get(id_.sequence)
            reason = await self._kept.take_wish(id_)
            if txn is not None and txn.state is TxnState.OPEN:
                await self._abort(txn, reason)
        except MagnetarError as error:
            # The wish stays, or the transaction has ended; the topic waits, and asks again.
            _log.info("transaction %s is to be aborted: %s", id_, error)

    async def abort_of(self, topic: str, subscription: str, reason: str) -> None:
        await self._side.abort_of(topic, subscription, reason)

    # -- topics ------------------------------------------------------------------------------------

    async def _recover(self, topic: Topic) -> None:
        if self._shared or await self._kept.shared():
            self._shared = True
            await self._resolving.recover_parts(topic)

    async def _take_up(self, txn_id: TxnId) -> bool:
        coordinator = await self._serve(txn_id.coordinator)
        now_ms = self._broker.clock.monotonic_ms()
        return await give_up(self._kept, self._headers, coordinator, txn_id, now_ms=now_ms)

    def hold(self, topic: Topic, producer: Producer, run: SendRun, who: Who) -> bool:
        return self._side.hold(topic, producer, run, who)

    def admit(self, topic: Topic, producer: str, run: SendRun, who: Who) -> RefusedError | None:
        return self._side.admit(topic, producer, run, who)

    def acknowledge(
        self,
        consumer: AttachedConsumer,
        event: AckEvent,
        who: Who,
        answer: Callable[[BaseException | None], None],
    ) -> None:
        self._side.acknowledge(consumer, event, who, answer)

    def missed(self, topic: str, producer: str, run: SendRun, who: Who) -> None:
        """Not noted: the topic may be at another broker next. See docs/transactions.md."""

    def check(self) -> None:
        for coordinator in self.coordinators.values():
            for txn in coordinator.transactions.values():
                txn.check()
        for topic in self.topics.values():
            if topic.transactions is not None:
                topic.transactions.spans.check()

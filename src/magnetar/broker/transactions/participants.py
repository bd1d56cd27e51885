"""What topics of this broker do in transactions of several brokers. Driver: `mirror.py` has a part's life.

Rules, each with an ablation in the simulator:
1. a part is claimed, by version, before the topic takes anything of its transaction, and only by the present
   owner: a former one cannot change it any more, nor claim one that is made later;
2. an acknowledgement is in the part before it is answered, stored while its transaction was open;
3. from the closing on nothing is taken, and the part says so once all that was taken is durable;
4. the part goes when what was decided is durable in the topic;
5. a topic that is loaded finds its parts, and claims them, before its first use.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MagnetarError, MetadataError
from magnetar.base.names import TopicName
from magnetar.broker.errors import (
    ServiceNotReadyError,
    TopicNotFoundError,
    TransactionNotFoundError,
)
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.kept import TOGETHER, parts_of
from magnetar.broker.transactions.kept_parts import KeptParts, header_at, part_at
from magnetar.broker.transactions.mirror import Mirror
from magnetar.broker.transactions.part_writing import PartWriting
from magnetar.broker.transactions.resolving import AGAIN_MS, Resolving
from magnetar.broker.transactions.subscription_acks import AbortOf
from magnetar.broker.transactions.topic_transactions import TopicTransactions
from magnetar.broker.transactions.transaction import Transaction
from magnetar.broker.transactions.txn_rules import TxnRules
from magnetar.managedlog.errors import LogFencedError
from magnetar.metadata import keys
from magnetar.metadata.store import BadVersionError, Change, NotFoundError, Notification, SessionEvent
from magnetar.runtime.tasks import SingleFlight, gathered

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort
    from magnetar.broker.topic.topic import Topic

_log = logging.getLogger("magnetar.broker.transactions")

_USED_MS: Final = 5.0
"""Between two looks at whether a topic that was recovered is in use."""
_LOOK_MS: Final = 250.0
"""A header that was read so recently is not read again because its part was written."""


class Participants(Resolving):
    """The parts of one broker's topics. `of_topic` has the mirrors of loaded topics."""

    _kept: KeptParts

    def __init__(
        self,
        broker: BrokerPort,
        kept: KeptParts,
        abort_of: AbortOf,
        rules: TxnRules,
        followed: Callable[[Transaction], None],
        overtaken: Callable[[int], None],
    ) -> None:
        """`followed`: a coordinator of this broker has decided a transaction. `overtaken`: another process
        has written outcomes of one."""
        super().__init__(broker, kept, abort_of, rules)
        self._overtaken = overtaken
        self._followed = followed
        self._holder = ""
        self._learning: SingleFlight[None] = SingleFlight()
        self._parts = PartWriting(kept, broker.clock, self._drop)
        self.save = self._parts.save
        self._closings: SingleFlight[None] = SingleFlight()
        self._looks: SingleFlight[None] = SingleFlight()
        self._knocks: SingleFlight[None] = SingleFlight()
        self._loading: set[str] = set()
        self._topics_of: dict[TxnId, set[str]] = {}
        """Topics with mirrors, by transaction."""
        self.any_hidden = True

    def begin(self, holder: str) -> None:
        """`holder`: name of this process, which no other one ever has."""
        self._holder = holder
        store = self._broker.store
        store.watch(keys.TRANSACTION_HEADERS, self._header_changed)
        store.watch(keys.TRANSACTION_PARTS, self._part_changed)
        store.watch_session(self._session_changed)

    # -- mirrors -----------------------------------------------------------------------------------

    def mirror(self, topic: str, id_: TxnId) -> Mirror | None:
        """As it is known here; None: it is not."""
        found = self.of_topic.get(topic, {}).get(id_)
        return found if isinstance(found, Mirror) else None

    def _has(self, mirror: Mirror) -> bool:
        """Whether it is still that of a loaded topic."""
        return self.of_topic.get(mirror.topic, {}).get(mirror.id) is mirror

    def _keep_mirror(self, mirror: Mirror) -> None:
        self.concerns(mirror, (mirror.topic,))
        self._topics_of.setdefault(mirror.id, set()).add(mirror.topic)

    def _drop(self, mirror: Mirror) -> None:
        if not self._has(mirror):
            return
        concerned = self.of_topic[mirror.topic]
        del concerned[mirror.id]
        if not concerned:
            del self.of_topic[mirror.topic]
        topics = self._topics_of.get(mirror.id, set())
        topics.discard(mirror.topic)
        if not topics:
            self._topics_of.pop(mirror.id, None)

    def drop_unloaded(self) -> None:
        """Forgets the mirrors of topics that are not loaded any more."""
        idle = self.of_topic.keys() - self._loading
        gone = [name for name in sorted(idle) if (topic := self.loaded(name)) is None or topic.closed]
        for name in gone:
            for mirror in list(self.of_topic[name].values()):
                assert isinstance(mirror, Mirror)
                self._drop(mirror)

    # -- learning ----------------------------------------------------------------------------------

    async def learn(self, topic: Topic, id_: TxnId) -> None:
        """On return the topic takes part, if a client added it, or did so and the mirror says how far it is.

        Raises NotAllowedError, TransactionNotFoundError, TransactionStateError, ServiceNotReadyError,
        MetadataError.
        """
        name = str(topic.name)
        await self._learning.run((name, id_), lambda: self._learn(topic, name, id_))

    async def _learn(self, topic: Topic, name: str, id_: TxnId) -> None:
        mirror = self.mirror(name, id_)
        if mirror is not None:
            await self._look_at(mirror)
            return
        value = await self._kept.part(topic.name.log_name, id_)
        mirror = self._new_mirror(topic, name, id_)
        if value is None or not await self._parts.take(mirror, value, topic.log):
            raise await self._parts.refusal(mirror)
        if mirror.last is None:
            mirror.last = topic.log.last_position
        # Else the part of a later topic of that name would be claimed.
        self._check_loaded(topic)
        await self._parts.claim(mirror, topic.log)
        self._check_loaded(topic)
        self.part_of(topic).recover_acks((mirror,))
        # Before the header is read, so that a change of it is heard of.
        self._keep_mirror(mirror)
        try:
            known = await self._parts.read_header(mirror)
        except BaseException:
            self._drop(mirror)
            raise
        if not known:
            self._drop(mirror)
            raise TransactionNotFoundError(f"transaction {id_} is not known")
        self._react(mirror)

    def _check_loaded(self, topic: Topic) -> None:
        if topic.closed or self.loaded(str(topic.name)) is not topic:
            raise ServiceNotReadyError(f"{topic.name} was unloaded meanwhile; look it up again")

    def _new_mirror(self, topic: Topic, name: str, id_: TxnId) -> Mirror:
        return Mirror(id_, name, epoch=topic.log.stored.version, holder=self._holder)

    # -- what the store tells ----------------------------------------------------------------------

    def _session_changed(self, event: SessionEvent) -> None:
        if event in (SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED):
            # Changes made meanwhile were not reported.
            self._look_at_all([each for of in self.of_topic.values() for each in of.values()])

    def _header_changed(self, notification: Notification) -> None:
        if notification.change is Change.CHILDREN_CHANGED:
            return
        id_ = header_at(notification.path)
        if id_ is None:
            return
        for name in sorted(self._topics_of.get(id_, ())):
            if (mirror := self.mirror(name, id_)) is not None:
                self._look_soon(mirror)

    def _part_changed(self, notification: Notification) -> None:
        if notification.change not in (Change.CREATED, Change.MODIFIED):
            return
        found, owners = part_at(notification.path), self._broker.owners
        if found is not None and owners is not None and owners.has(name := TopicName.from_log_name(found[0])):
            self.knocked(str(name), found[1], new=notification.change is Change.CREATED)

    def knocked(self, name: str, id_: TxnId, *, new: bool = False) -> None:
        """The coordinator waits for the topic's part, or it is `new`."""
        mirror = self.mirror(name, id_)
        if mirror is not None:
            if self._broker.clock.monotonic_ms() - mirror.looked_ms >= _LOOK_MS:
                self._look_soon(mirror)
        elif name not in self._loading and (not new or self.loaded(name) is not None):
            # While it is loaded its own claims are heard of, and all its parts are looked at afterwards.
            work = self._knocks.run((name, id_), lambda: self._answer_knock(name, id_))
            self._broker.tasks.spawn(self._quietly(work, f"{name} in transaction {id_}"))

    async def _answer_knock(self, name: str, id_: TxnId) -> None:
        topic_name = TopicName.parse(name)
        try:
            topic = await self._broker.topic(topic_name, create=False)
        except TopicNotFoundError:
            # It was deleted with all that it held: nothing is left to be done for it.
            value = await self._kept.part(topic_name.log_name, id_)
            if value is not None:
                await self._kept.drop_part(topic_name.log_name, id_, value.stat.version)
            return
        await self.learn(topic, id_)

    async def _quietly(self, work: Awaitable[object], what: str) -> None:
        try:
            await work
        except MagnetarError as error:
            # The coordinator knocks again, or a client asks again.
            _log.info("%s: %s", what, error)

    # -- what follows from a header ----------------------------------------------------------------

    def _look_soon(self, mirror: Mirror) -> None:
        self._broker.tasks.spawn(self._quietly(self._look_at(mirror), f"transaction {mirror.id}"))

    def _look_at_all(self, txns: Iterable[Transaction]) -> None:
        """Some at a time: there may be a hundred thousand, and what is begun at once stalls the broker."""
        mirrors = [each for each in txns if isinstance(each, Mirror)]

        async def look() -> None:
            for some in parts_of(mirrors, TOGETHER):
                await gathered(
                    self._quietly(self._look_at(each), "looks") for each in some if self._has(each)
                )

        self._broker.tasks.spawn(look())

    async def _look_at(self, mirror: Mirror) -> None:
        """Reads the header, and does what it says. What runs already may have read an older one."""
        joined, key = True, (mirror.topic, mirror.id)
        while joined:
            joined = self._looks.running(key)
            await self._looks.run(key, lambda: self._look(mirror))

    async def _look(self, mirror: Mirror) -> None:
        if not await self._parts.read_header(mirror):
            # The part is gone too: a later owner of the topic made it so.
            self._drop(mirror)
            return
        if self._has(mirror):
            self._react(mirror)

    def _react(self, mirror: Mirror) -> None:
        topic = self.loaded(mirror.topic)
        if topic is None or topic.closed:
            return
        if mirror.state is not TxnState.OPEN:
            if not mirror.unresolved:
                mirror.unresolved = {mirror.topic}
                self._tell(mirror, mirror.topic, self.part_of(topic))
        elif mirror.closing and mirror.durable is None:
            key = mirror.topic, mirror.id
            self._broker.tasks.spawn(self._closings.run(key, lambda: self._close(mirror)))

    async def _close(self, mirror: Mirror) -> None:
        """Says whether all that was taken is durable, once it is."""
        topic = self.loaded(mirror.topic)
        if topic is None or not self._has(mirror) or mirror.state is not TxnState.OPEN:
            return
        if self._rules.settles_first():
            await self.part_of(topic).settled(mirror.id)
        if topic.closed or self.loaded(mirror.topic) is not topic:
            return  # its next owner says so
        mirror.durable = not (mirror.lost or mirror.missing)
        mirror.changed()
        await self._say(mirror)

    async def _say(self, mirror: Mirror) -> None:
        """Writes the part until that succeeds, or is not this owner's to do any more."""
        if not self._has(mirror):
            return
        try:
            await self.save(mirror)
        except MetadataError as error:
            _log.warning("transaction %s cannot be closed in %s: %s", mirror.id, mirror.topic, error)
            key, spawn = ("close", mirror.id, mirror.topic), self._broker.tasks.spawn
            self._broker.alarms.after(key, AGAIN_MS, lambda: spawn(self._say(mirror)))
        except MagnetarError as error:
            # It is over, or a later owner has the topic.
            _log.info("transaction %s in %s: %s", mirror.id, mirror.topic, error)

    def lose(self, topic: str, txns: Iterable[TxnId]) -> None:
        """The part says so at once: the next owner would know of durable messages only."""
        loaded = self.loaded(topic)
        if loaded is not None and isinstance(loaded.log.error, LogFencedError):
            return  # that one has the log, and clients send it what is not there
        for mirror in [self.mirror(topic, each) for each in txns]:
            if mirror is not None and not mirror.lost:
                mirror.lost, mirror.durable = True, False
                mirror.changed()
                self._broker.tasks.spawn(self._say(mirror))

    # -- after the decision ------------------------------------------------------------------------

    def follow(self, txn: Transaction) -> None:
        self._followed(txn)

    def over(self, txn: Transaction) -> None:
        """No topic of a decided transaction has a part any more: its header is to become an outcome."""
        txn.unresolved.clear()
        super()._resolve(txn, "")

    def forget_resolved(self, number: int) -> None:
        """The coordinator is another broker's: what is over is for that one to write down."""
        self._resolved.pop(number, None)

    async def _sweep_of(self, number: int, resolved: list[Transaction]) -> None:
        if number not in self.coordinators or self._resolved.get(number) is not resolved:
            return
        try:
            await super()._sweep_of(number, resolved)
        except (BadVersionError, NotFoundError):
            # Read anew, it has what the other one wrote.
            self._overtaken(number)

    def _begin(self, txn: Transaction, name: str, part: TopicTransactions | None = None) -> None:
        if isinstance(txn, Mirror) and self._has(txn):
            topic = self.loaded(name)
            if topic is not None and not topic.closed:
                super()._begin(txn, name, part or self.part_of(topic))

    def _resolve(self, txn: Transaction, name: str) -> None:
        if isinstance(txn, Mirror):
            self._broker.tasks.spawn(self._let_go(txn))

    async def _let_go(self, mirror: Mirror) -> None:
        """What was decided is durable in the topic: the part goes."""
        if not self._has(mirror):
            return
        try:
            await self._parts.delete(mirror)
        except MetadataError as error:
            _log.warning("transaction %s in %s: %s; it is tried again", mirror.id, mirror.topic, error)
            key, spawn = ("let go", mirror.id, mirror.topic), self._broker.tasks.spawn
            self._broker.alarms.after(key, AGAIN_MS, lambda: spawn(self._let_go(mirror)))
            return
        except MagnetarError as error:
            # It is over, or a later owner has the topic.
            _log.info("transaction %s in %s: %s", mirror.id, mirror.topic, error)
        self._drop(mirror)

    # -- topics that are loaded --------------------------------------------------------------------

    async def recover_parts(self, topic: Topic) -> None:
        """Finds and claims the parts of a topic that is being loaded, and applies what was decided.

        Raises LedgerError, MetadataError, LogError, ServiceNotReadyError.
        """
        name = str(topic.name)
        for mirror in list(self.of_topic.get(name, {}).values()):
            assert isinstance(mirror, Mirror)
            self._drop(mirror)
        mirrors = []
        async for id_, value in self._kept.parts(topic.name.log_name):
            mirror = self._new_mirror(topic, name, id_)
            if await self._parts.take(mirror, value, topic.log):
                mirrors.append(mirror)
        self._loading.add(name)
        try:
            await self._parts.claim_all(mirrors, topic.log)
            for mirror in mirrors:
                if mirror.saved:
                    self._keep_mirror(mirror)
            await self.recover(topic)
        except BaseException:
            self._loading.discard(name)
            raise
        if mirrors:
            self._look_when_used(topic, mirrors)
        else:
            self._loading.discard(name)

    def _look_when_used(self, topic: Topic, mirrors: list[Mirror]) -> None:
        """What was decided while the topic was loaded is followed once it is in use."""
        name = str(topic.name)
        if topic.closed or self.loaded(name) is topic:
            self._loading.discard(name)
            self._look_at_all(mirrors)
            return
        key = ("look", name)
        self._broker.alarms.after(key, _USED_MS, lambda: self._look_when_used(topic, mirrors))

    def _concerns_unknown(self, txn: Transaction, name: str) -> None:
        """Its part says so."""

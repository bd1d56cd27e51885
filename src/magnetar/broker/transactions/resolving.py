"""After the decision: topics do what it means and make that durable, then headers become outcomes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MagnetarError, MetadataError
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.broker.errors import TopicNotFoundError
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.kept import TOGETHER, KeptTransactions
from magnetar.broker.transactions.subscription_acks import AbortOf, acks_of
from magnetar.broker.transactions.topic_transactions import TopicTransactions
from magnetar.broker.transactions.transaction import Transaction
from magnetar.broker.transactions.txn_rules import TxnRules
from magnetar.managedlog.orphans import log_paths
from magnetar.metadata.keys import MANAGED_LEDGERS
from magnetar.metadata.store import BadVersionError, StoreClosedError, StoreUnreachableError
from magnetar.runtime.flights import OneAtATime
from magnetar.runtime.tasks import SingleFlight, gathered

if TYPE_CHECKING:
    from magnetar.base.ids import Position
    from magnetar.broker.ports import BrokerPort
    from magnetar.broker.topic.topic import Topic

_log = logging.getLogger("magnetar.broker.transactions")

AGAIN_MS: Final = 1_000.0
"""After which what failed is tried again."""
_SWEEP_MS: Final = 1_000.0
"""After which the headers of resolved transactions become outcomes, or earlier when many are."""
_SWEEP_MANY: Final = 256


class Resolving:
    """Resolves the transactions of one broker."""

    def __init__(
        self, broker: BrokerPort, kept: KeptTransactions, abort_of: AbortOf, rules: TxnRules
    ) -> None:
        """`abort_of`: see there."""
        self._rules = rules
        self.coordinators: dict[int, Coordinator] = {}
        """Coordinators that have begun a transaction."""
        self.of_topic: dict[str, dict[TxnId, Transaction]] = {}
        """Transactions that are not resolved, by the topics that they concern."""
        self._counted: dict[str, dict[TxnId, Transaction]] = {}
        """Committed transactions whose headers still name acknowledgements of a topic, which are durable in
        its cursors; by topic."""
        self.any_hidden = False
        """Whether any topic may have hidden entries in the store."""
        self._broker = broker
        self._kept = kept
        self._abort_of = abort_of
        self._running: SingleFlight[None] = SingleFlight()
        self._strikes = OneAtATime()
        self._resolved: dict[int, list[Transaction]] = {}
        self._sweeping = self._swept_in_vain = False

    def loaded(self, name: str) -> Topic | None:
        """The topic, if it is loaded."""
        return self._broker.topics.get(name)

    def part_of(self, topic: Topic) -> TopicTransactions:
        """The topic's part in transactions, made when it is first asked for."""
        if topic.transactions is None:
            topic.transactions = self._new_part(topic)
        return topic.transactions

    def end_of(self, name: TopicName) -> Position | None:
        """The last entry now, from which on the topic refuses entries that falsely name a transaction; None:
        it is not loaded."""
        topic = self.loaded(str(name))
        if topic is None:
            return None
        self.part_of(topic)
        return topic.log.last_position

    def _new_part(self, topic: Topic) -> TopicTransactions:
        clock = self._broker.clock
        return TopicTransactions(topic, self._kept, self._abort_of, self.lose, clock, self._rules)

    def lose(self, topic: str, txns: Iterable[TxnId]) -> None:
        """Messages of these that the topic accepted never became durable: they cannot commit."""
        concerned = self.of_topic.get(topic, {})
        for txn in filter(None, map(concerned.get, txns)):
            txn.lost = True

    async def durable(self, txn: Transaction) -> bool:
        """Returns when all messages that topics accepted of it are durable; False: some never will be, or
        were dropped and not sent again."""
        for name in txn.partitions:
            topic = self.loaded(name)
            part = None if topic is None else topic.transactions
            if part is not None and self._rules.settles_first():
                await part.settled(txn.id)
        return not (txn.lost or txn.missing)

    def concerns(self, txn: Transaction, topics: Collection[str]) -> None:
        """The transaction concerns these topics."""
        for name in topics:
            self.of_topic.setdefault(name, {})[txn.id] = txn

    async def settled(self, topic: str, txns: Collection[Transaction]) -> None:
        """Returns when the topic has made durable what was decided of these, or trying that has failed."""
        await gathered(self._running.settled((txn.id, topic)) for txn in txns)

    # -- what the decision means ---------------------------------------------------------------------

    def follow(self, txn: Transaction) -> None:
        """Every topic that the transaction concerns does what the decision means."""
        if not txn.unresolved:
            self._resolve(txn, "")
            return
        for name in sorted(txn.unresolved):
            topic = self.loaded(name)
            if topic is None:
                aborted = txn.state is TxnState.ABORTED
                if name in txn.partitions if aborted else bool(txn.acks.get(name)):
                    self._begin(txn, name)
                else:
                    self._resolve(txn, name)
            elif topic.transactions is None and not txn.acks.get(name):
                self._resolve(txn, name)
            else:
                self._tell(txn, name, self.part_of(topic))

    def _tell(self, txn: Transaction, name: str, part: TopicTransactions) -> None:
        part.decided(txn)
        self.any_hidden = self.any_hidden or part.hides(txn)
        if part.hides(txn) or (txn.state is TxnState.COMMITTED and txn.acks.get(name)):
            self._begin(txn, name, part)
        else:
            self._resolve(txn, name)

    def _begin(self, txn: Transaction, name: str, part: TopicTransactions | None = None) -> None:
        """Makes the effects of the decision on a topic durable; `part` is None when it is not loaded."""
        work = self._running.run((txn.id, name), lambda: self._keep(txn, name, part))
        self._broker.tasks.spawn(work)

    async def _keep(self, txn: Transaction, name: str, part: TopicTransactions | None) -> None:
        try:
            if part is None:
                # Loading the topic applies the decision; a decision made meanwhile is applied only here.
                topic = await self._broker.topic(TopicName.parse(name), create=False)
                part = self.part_of(topic)
                part.decided(txn)
                self.any_hidden = self.any_hidden or part.hides(txn)
            await part.keep(txn)
        except TopicNotFoundError:
            pass  # It was deleted with all that it held: nothing is left to be done for it.
        except MagnetarError as error:
            _log.warning("transaction %s on %s: %s; it is tried again", txn.id, name, error)
            key = ("transaction", txn.id, name)
            self._broker.alarms.after(key, AGAIN_MS, lambda: self._begin(txn, name))
            return
        self._resolve(txn, name)

    def _resolve(self, txn: Transaction, name: str) -> None:
        """The topic has made durable what the decision means for it; "" where there are no topics."""
        concerned = self.of_topic.get(name)
        if concerned is not None and concerned.pop(txn.id, None) is not None and not concerned:
            del self.of_topic[name]
        if txn.state is TxnState.COMMITTED and txn.acks.get(name):
            self._counted.setdefault(name, {})[txn.id] = txn
        coordinator = self.coordinators[txn.id.coordinator]
        if name and not coordinator.resolved_by(txn, name):
            return
        resolved = self._resolved.setdefault(coordinator.number, [])
        resolved.append(txn)
        if len(resolved) >= _SWEEP_MANY:
            self._sweep_soon()
        elif len(resolved) == 1:
            self._broker.alarms.after(("transactions", coordinator.number), _SWEEP_MS, self._sweep_soon)

    # -- headers become outcomes ---------------------------------------------------------------------

    def _sweep_soon(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            self._broker.tasks.spawn(self._sweep())

    async def _sweep(self) -> None:
        try:
            for number, resolved in list(self._resolved.items()):
                await self._sweep_of(number, resolved)
            self._swept_in_vain = False
        except MetadataError as error:
            self._swept_in_vain = True
            _log.warning("headers of transactions that are over stay for now: %s", error)
            self._broker.alarms.after("transactions", AGAIN_MS, self._sweep_soon)
        finally:
            self._sweeping = False

    async def _sweep_of(self, number: int, resolved: list[Transaction]) -> None:
        coordinator = self.coordinators[number]
        while part := resolved[: self._kept.ended_together]:
            pages, again = coordinator.ended(part), self._swept_in_vain
            await self._kept.end(coordinator, part, pages, again=again)
            del resolved[: len(part)]
            coordinator.forget(part)
            self._forget_counted(part)
        for page in coordinator.outcomes.surplus():
            await self._kept.forget_outcomes(number, page)
            coordinator.outcomes.forget(page)

    def _forget_counted(self, txns: Iterable[Transaction]) -> None:
        for txn in txns:
            for name in txn.acks:
                counted = self._counted.get(name)
                if counted is not None and counted.pop(txn.id, None) is not None and not counted:
                    del self._counted[name]

    async def strike(self, topic: str, subscription: str) -> bool:
        """Takes acknowledgements of a subscription that count already out of the headers that name them,
        durably: after a crash they would count again, though the subscription was moved back. Returns whether
        there were any.

        Headers may stay for long: until each topic of their transactions could be loaded. Raises
        MetadataError.
        """
        if not self._rules.strikes_first():
            return False
        counted = list(self._counted.get(topic, {}).values())
        found = [txn for txn in counted if len(txn.acks.get(topic, {}).get(subscription, ()))]
        for start in range(0, len(found), TOGETHER):
            part = found[start : start + TOGETHER]
            await gathered(self._strike(txn, topic, subscription) for txn in part)
        return bool(found)

    async def _strike(self, txn: Transaction, topic: str, subscription: str) -> None:
        while subscription in txn.acks[topic]:
            await self._strikes.run(txn.id, partial(self._strike_once, txn, topic, subscription))

    async def _strike_once(self, txn: Transaction, topic: str, subscription: str) -> None:
        try:
            version = await self._kept.write(txn, txn.header_without(topic, subscription))
        except BadVersionError:
            found = await self._kept.header(txn.id)
            if found is not None:
                # An earlier write took effect without an answer: the next attempt is upon it.
                txn.version = found[1]
                return
        else:
            txn.version = version
        del txn.acks[topic][subscription]

    # -- topics that are loaded ----------------------------------------------------------------------

    async def recover(self, topic: Topic) -> None:
        """Applies the transactions to a topic that is being loaded, before its first use.

        Raises LedgerError, MetadataError, LogError.
        """
        name = str(topic.name)
        for txn in self._counted.get(name, {}).values():
            for each in txn.acks[name]:
                if (subscription := topic.subscriptions.get(each)) is not None:
                    acks_of(subscription, self._abort_of)  # So that a seek strikes them.
        known = list(self.of_topic.get(name, {}).values())
        unknown = [txn for each in self.coordinators.values() for txn in each.unknown.values()]
        if not (known or unknown or self.any_hidden):
            return
        part = self._new_part(topic)
        await part.recover(known, unknown)
        for txn in unknown:
            if txn.id in part.spans:
                self._concerns_unknown(txn, name)
        concerned = list(self.of_topic.get(name, {}).values())
        if not (part.spans or part.spans.visible.hidden or concerned):
            topic.log.reading.visible = None
            return
        topic.transactions = part
        # In this turn, so that nothing comes in between: including decisions made while the log was read.
        part.recover_acks(concerned)
        for txn in {txn.id: txn for txn in (*known, *unknown, *concerned)}.values():
            # Also those whose decisions needed no work here when they were made: the log was being read then,
            # and they counted as open.
            if txn.state is not TxnState.OPEN:
                self._tell(txn, name, part)

    # -- transactions whose headers are damaged --------------------------------------------------------

    def _concerns_unknown(self, txn: Transaction, name: str) -> None:
        _log.error("%s is held back by transaction %s: %s", name, txn.id, txn.reason)
        txn.partitions.setdefault(name, None)
        self.concerns(txn, (name,))

    async def take_up(self, txn_id: TxnId) -> bool:
        """An operator gives up an unknown transaction: it can be aborted on return. Every topic is loaded
        first, because any may hold entries of it; a header without one would make them count as committed.
        One that cannot be loaded stands in the header, which stays until it was. Whether it was unknown.

        Raises MetadataError when the store is away: then it stays unknown.
        """
        coordinator = self.coordinators.get(txn_id.coordinator)
        txn = None if coordinator is None else coordinator.unknown.get(txn_id.sequence)
        if coordinator is None or txn is None:
            return False
        for path in await log_paths(self._broker.store):
            name = TopicName.from_log_name(path.removeprefix(f"{MANAGED_LEDGERS}/"))
            with contextlib.suppress(TopicNotFoundError):  # it was deleted meanwhile, with all that it held
                await self._search(txn, name)
        coordinator.take_up(txn, now_ms=self._broker.clock.monotonic_ms())
        return True

    async def _search(self, txn: Transaction, name: TopicName) -> None:
        """Finds entries of an unknown transaction in a topic, by loading it."""
        try:
            await self._broker.topic(name, create=False)
        except (TopicNotFoundError, StoreUnreachableError, StoreClosedError):
            raise
        except MagnetarError as error:
            _log.warning(
                "%s may hold messages of transaction %s, and cannot be searched: %s", name, txn.id, error
            )
            self._concerns_unknown(txn, str(name))

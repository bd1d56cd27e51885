"""Rules of the broker and its registry, each with a way to break it.

Rules that are not here, because another one holds without them: the lock of a log's name (the registry has
one flight per name), and the wait for a subscription that is being deleted (cursors are opened and deleted
one at a time). Unit tests of both say what they are for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from magnetar.base.entries import EntryRun
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.broker.access.access_state import Admission
from magnetar.broker.registry.registry_rules import RegistryRules
from magnetar.broker.registry.topic_states import TopicState
from magnetar.broker.subscription.any_subscription import AnySubscription
from magnetar.broker.subscription.pump import RateWait
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.disk_mark import DiskMark
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.subscription_life import check_attachable
from magnetar.broker.topic.topic import Topic
from magnetar.broker.topic.topic_resources import TopicResources
from magnetar.broker.topic.unanswered import ReceiptLine, Unanswered
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.log_metadata import decode, log_path
from magnetar.managedlog.logs import ManagedLogs
from magnetar.runtime.flights import Flight
from sim.breaking import Mutation
from sim.rules import RulesInForce


class _BlindTo(RegistryRules):
    def __init__(self, state: TopicState) -> None:
        self._state = state

    def waits_for(self, state: TopicState) -> bool:
        return state is not self._state


class _LedgersFirst(ManagedLogs):
    """Ledgers go while the log's value still names them."""

    async def delete(self, name: str, confirmed: Callable[[], Awaitable[None]] | None = None) -> None:
        value = await self._store.get(log_path(name))
        if value is not None:
            for record in decode(value.data, name).ledgers:
                await self.ledgers.delete(record.ledger_id)
        await super().delete(name, confirmed)


class _WorkOfTheFirst(Flight[None]):
    """A cancelled caller ends the flight for all callers."""

    __slots__ = ()

    async def landing(self, seconds: float) -> None:
        async with asyncio.timeout(max(0.0, seconds)):
            return await self._task


class _EndsWithTheFirst(RegistryRules):
    def flight(self, work: Coroutine[object, object, None]) -> Flight[None]:
        return _WorkOfTheFirst(work)


class _LeavesOpen(RegistryRules):
    def closes_half_loaded(self) -> bool:
        return False


class _WhateverWaits(ReceiptLine):
    __slots__ = ()

    def pop(self, durable: Position) -> Unanswered | None:
        return self._items.popleft() if self._items else None


class _NeverRead(Subscription):
    """A read that never ends: the pump stays in READING."""

    def pump(self) -> None:
        step = self._pump.run()
        if isinstance(step, RateWait):
            self._alarms.after(self, step.wait_ms, self.pump)


class _KeepsConsumers(Subscription):
    """Left out."""

    def detach_all(self) -> None:
        return


class _TakesAll(Topic):
    def attach_producer(self, producer: Producer) -> Admission:
        return self.access.attach(producer)

    def check_there(self, subscription: AnySubscription) -> None:
        check_attachable(self.name, self.subscriptions, subscription)


class _ClosedWithoutAWord(Topic):
    def disconnect_clients(self) -> None:
        self.closed = True


class _HidesItsLoss(Topic):
    def failed(self, error: MagnetarError) -> None:
        return


class _ReceiptsWithoutAPump(Topic):
    def appended(self, run: EntryRun) -> None:
        self.publishing.release(Position(run.ledger_id, run.last_entry))


class _Makes(RegistryRules):
    """Makes topics that do not keep a rule."""

    def __init__(self, topic: Callable[..., Topic], **how: Any) -> None:
        self._topic = topic
        self._how = how

    def topic(self, name: TopicName, log: ManagedLog, resources: TopicResources, disk: DiskMark) -> Topic:
        how = {key: made() if key == "line" else made for key, made in self._how.items()}
        return self._topic(name, log, resources, disk=disk, **how)


BROKER_MUTATIONS: Final = {
    "one-load": Mutation(
        "a name is loaded once at a time",
        [(RulesInForce, "registry", _BlindTo(TopicState.LOADING))],
        found_by=0,
        scenario="broker",
    ),
    "load-after-unload": Mutation(
        "a name is loaded when its unloading has ended",
        [(RulesInForce, "registry", _BlindTo(TopicState.UNLOADING))],
        found_by=2,
        scenario="broker",
    ),
    "load-after-deletion": Mutation(
        "a name is loaded when its deletion has ended",
        [(RulesInForce, "registry", _BlindTo(TopicState.DELETING))],
        found_by=2,
        scenario="broker",
    ),
    "list-before-ledgers": Mutation(
        "a log's ledgers are out of its list before they are deleted with it",
        [(RulesInForce, "logs", _LedgersFirst)],
        found_by=61,
        scenario="broker",
    ),
    "others-keep-the-flight": Mutation(
        "a caller that gives up waiting leaves the flight to the others",
        [(RulesInForce, "registry", _EndsWithTheFirst())],
        found_by=4,
        scenario="broker",
    ),
    "half-loaded-is-closed": Mutation(
        "what could not be loaded whole is closed",
        [(RulesInForce, "registry", _LeavesOpen())],
        found_by=40,
        scenario="broker",
    ),
    "closed-takes-nobody": Mutation(
        "no client attaches to a topic that is being closed",
        [(RulesInForce, "registry", _Makes(_TakesAll))],
        found_by=17,
        scenario="broker",
    ),
    "clients-are-sent-away": Mutation(
        "a topic that goes sends its clients away",
        [(RulesInForce, "registry", _Makes(_ClosedWithoutAWord))],
        found_by=1,
        scenario="broker",
    ),
    "consumers-are-sent-away": Mutation(
        "a subscription that goes sends its consumers away",
        [(RulesInForce, "registry", _Makes(Topic, subscription=_KeepsConsumers))],
        found_by=2,
        scenario="broker",
    ),
    "a-lost-log-is-told": Mutation(
        "a topic whose log keeps nothing sends its clients away",
        [(RulesInForce, "registry", _Makes(_HidesItsLoss))],
        found_by=11,
        scenario="broker",
    ),
    "receipts-when-durable": Mutation(
        "a message has a receipt when it is durable",
        [(RulesInForce, "registry", _Makes(Topic, line=_WhateverWaits))],
        found_by=24,
        scenario="broker",
    ),
    "durable-is-delivered": Mutation(
        "what became durable is given to consumers that wait",
        [(RulesInForce, "registry", _Makes(_ReceiptsWithoutAPump))],
        found_by=0,
        scenario="broker",
    ),
    "reads-end": Mutation(
        "a read of the log ends, whatever comes of it",
        [(RulesInForce, "registry", _Makes(Topic, subscription=_NeverRead))],
        found_by=0,
        scenario="broker",
    ),
}

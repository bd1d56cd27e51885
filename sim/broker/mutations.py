"""Rules of the broker and its registry, each with a way to break it.

Rules that are not here, because another one holds without them: the lock of a log's name (the registry has
one flight per name), and the wait for a subscription that is being deleted (cursors are opened and deleted
one at a time). Unit tests of both say what they are for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.broker.registry import storage
from magnetar.broker.registry.registry import TopicRegistry
from magnetar.broker.registry.topic_states import TopicState
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.any_topic import AnyTopic
from magnetar.broker.topic.topic import Topic
from magnetar.broker.topic.unanswered import ReceiptLine, Unanswered
from magnetar.managedlog.log_metadata import decode, log_path
from magnetar.managedlog.logs import ManagedLogs
from magnetar.runtime.flights import Flight
from sim.breaking import Mutation

_delete: Final = ManagedLogs.delete
_under_way: Final = TopicRegistry._under_way


def _blind_to(state: TopicState) -> Callable[[TopicRegistry, str], Any]:
    def under_way(self: TopicRegistry, name: str) -> Any:
        work = _under_way(self, name)
        return None if work is not None and work.state is state else work

    return under_way


async def _ledgers_first(self: ManagedLogs, name: str, *confirmed: Any) -> None:
    """Ledgers go while the log's value still names them."""
    value = await self._store.get(log_path(name))
    if value is not None:
        for record in decode(value.data, name).ledgers:
            await self.ledgers.delete(record.ledger_id)
    await _delete(self, name, *confirmed)


async def _no_end(self: Subscription, *arguments: Any) -> None:
    """A read that never ends: the pump stays in READING."""


def _nothing(*_: object) -> None:
    """Left out."""


def _closed_without_a_word(self: Topic) -> None:
    self.closed = True


def _receipts_without_a_pump(self: Topic, run: EntryRun) -> None:
    self.publishing.release(Position(run.ledger_id, run.last_entry))


def _whatever_waits(self: ReceiptLine, durable: Position) -> Unanswered | None:
    return self._items.popleft() if self._items else None


async def _work_of_the_first(self: Flight[Any], seconds: float) -> Any:
    """A cancelled caller ends the flight for all callers."""
    async with asyncio.timeout(max(0.0, seconds)):
        return await self._task


async def _left_open(work: Awaitable[object], what: str) -> None:
    cast("Any", work).close()


BROKER_MUTATIONS: Final = {
    "one-load": Mutation(
        "a name is loaded once at a time",
        [(TopicRegistry, "_under_way", _blind_to(TopicState.LOADING))],
        found_by=0,
        scenario="broker",
    ),
    "load-after-unload": Mutation(
        "a name is loaded when its unloading has ended",
        [(TopicRegistry, "_under_way", _blind_to(TopicState.UNLOADING))],
        found_by=2,
        scenario="broker",
    ),
    "load-after-deletion": Mutation(
        "a name is loaded when its deletion has ended",
        [(TopicRegistry, "_under_way", _blind_to(TopicState.DELETING))],
        found_by=2,
        scenario="broker",
    ),
    "list-before-ledgers": Mutation(
        "a log's ledgers are out of its list before they are deleted with it",
        [(ManagedLogs, "delete", _ledgers_first)],
        found_by=77,
        scenario="broker",
    ),
    "others-keep-the-flight": Mutation(
        "a caller that gives up waiting leaves the flight to the others",
        [(Flight, "landing", _work_of_the_first)],
        found_by=0,
        scenario="broker",
    ),
    "half-loaded-is-closed": Mutation(
        "what could not be loaded whole is closed",
        [(storage, "guarded", _left_open)],
        found_by=40,
        scenario="broker",
    ),
    "closed-takes-nobody": Mutation(
        "no client attaches to a topic that is being closed",
        [(AnyTopic, "_check_open", _nothing)],
        found_by=66,
        scenario="broker",
    ),
    "clients-are-sent-away": Mutation(
        "a topic that goes sends its clients away",
        [(Topic, "disconnect_clients", _closed_without_a_word)],
        found_by=1,
        scenario="broker",
    ),
    "consumers-are-sent-away": Mutation(
        "a subscription that goes sends its consumers away",
        [(Subscription, "detach_all", _nothing)],
        found_by=2,
        scenario="broker",
    ),
    "a-lost-log-is-told": Mutation(
        "a topic whose log keeps nothing sends its clients away",
        [(Topic, "failed", _nothing)],
        found_by=11,
        scenario="broker",
    ),
    "receipts-when-durable": Mutation(
        "a message has a receipt when it is durable",
        [(ReceiptLine, "pop", _whatever_waits)],
        found_by=24,
        scenario="broker",
    ),
    "durable-is-delivered": Mutation(
        "what became durable is given to consumers that wait",
        [(Topic, "appended", _receipts_without_a_pump)],
        found_by=0,
        scenario="broker",
    ),
    "reads-end": Mutation(
        "a read of the log ends, whatever comes of it",
        [(Subscription, "_read", _no_end)],
        found_by=3,
        scenario="broker",
    ),
}

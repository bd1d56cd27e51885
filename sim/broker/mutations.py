"""Rules of the broker's registry, each with a way to break it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from magnetar.broker.registry.registry import TopicRegistry
from magnetar.broker.registry.topic_states import TopicState
from magnetar.broker.subscription.subscription import Subscription
from magnetar.managedlog.log_metadata import decode, log_path
from magnetar.managedlog.logs import ManagedLogs
from sim.breaking import Mutation

_delete: Final = ManagedLogs.delete
_under_way: Final = TopicRegistry._under_way


def _blind_to(state: TopicState) -> Callable[[TopicRegistry, str], Any]:
    def under_way(self: TopicRegistry, name: str) -> Any:
        work = _under_way(self, name)
        return None if work is not None and work.state is state else work

    return under_way


async def _ledgers_first(self: ManagedLogs, name: str) -> None:
    """Ledgers go while the log's value still names them."""
    value = await self._store.get(log_path(name))
    if value is not None:
        for record in decode(value.data, name).ledgers:
            await self._ledgers.delete(record.ledger_id)
    await _delete(self, name)


async def _no_end(self: Subscription, *arguments: Any) -> None:
    """A read that never ends: `_reading` stays."""


BROKER_MUTATIONS: Final = {
    "one-load": Mutation(
        "a name is loaded once at a time",
        [(TopicRegistry, "_under_way", _blind_to(TopicState.LOADING))],
        0,
        "broker",
    ),
    "load-after-unload": Mutation(
        "a name is loaded when its unloading has ended",
        [(TopicRegistry, "_under_way", _blind_to(TopicState.UNLOADING))],
        0,
        "broker",
    ),
    "load-after-deletion": Mutation(
        "a name is loaded when its deletion has ended",
        [(TopicRegistry, "_under_way", _blind_to(TopicState.DELETING))],
        0,
        "broker",
    ),
    "list-before-ledgers": Mutation(
        "a log's ledgers are out of its list before they are deleted with it",
        [(ManagedLogs, "delete", _ledgers_first)],
        37,
        "broker",
    ),
    "reads-end": Mutation(
        "a read of the log ends, whatever comes of it",
        [(Subscription, "_read", _no_end)],
        0,
        "broker",
    ),
}

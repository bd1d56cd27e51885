"""The life of a topic's subscriptions, by name (pure).

    absent ──add──▶ listed ──a reader's, without consumers: left──▶ absent
                      │
                      └─drop─▶ ending ──transactions ended──▶ deleting ──▶ deleted (absent)
                                 │                               │
                                 └───────────▶ failed ◀──────────┘   (listed again)

A SUBSCRIBE asks `next_for` what to do now, does that, and asks again, until there is a subscription to attach
to: whatever takes time gives others the chance to create, move, delete or unload. A subscription that
is being deleted is still listed while transactions on it end, and not any more while its cursor is deleted.
The driver is the topic (`topic.py`), which opens and deletes cursors, one deletion of a name at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from magnetar.base.machine import Machine
from magnetar.base.names import TopicName
from magnetar.broker.errors import ServiceNotReadyError, SubscriptionNotFoundError


class DropState(Enum):
    """The state of one deletion."""

    ENDING = "ending"
    """Transactions on the subscription are aborted; it is listed until then."""
    DELETING = "deleting"
    """It sent its consumers away, and its cursor is deleted."""
    DELETED = "deleted"
    """A subscription of the same name is another one."""
    FAILED = "failed"
    """It is still there, holds its backlog, and can be deleted again."""


DROP_TRANSITIONS: Final = {
    DropState.ENDING: frozenset({DropState.DELETING, DropState.FAILED}),
    DropState.DELETING: frozenset({DropState.DELETED, DropState.FAILED}),
    DropState.DELETED: frozenset[DropState](),
    DropState.FAILED: frozenset[DropState](),
}


class Next(Enum):
    """The next step of a SUBSCRIBE."""

    ATTACH = "attach"
    """The subscription is there."""
    WAIT_FOR_SEEK = "wait for the seek"
    """It is there, and a seek of it is not answered yet."""
    OPEN_CURSOR = "open the cursor"
    """It is not there; its cursor is opened, or made."""
    ADD = "add"
    """It is not there, and all that it is made of is: to be added in this turn."""


class Fence(Protocol):
    """The fence of seeks: `subscription/seek_fence.py` `SeekFence`."""

    @property
    def is_up(self) -> bool: ...


class ListedSubscription(Protocol):
    """A subscription, as its topic lists it: `subscription/any_subscription.py` `AnySubscription`."""

    @property
    def name(self) -> str: ...
    @property
    def seeks(self) -> Fence: ...
    @property
    def durable(self) -> bool: ...
    @property
    def consumers(self) -> Sequence[object]: ...


class LoadedTopic(Protocol):
    """A topic that may be unloaded: `publish_path.py` `PublishPath`."""

    @property
    def closed(self) -> bool: ...


S = TypeVar("S", bound=ListedSubscription)


def check_open(name: TopicName, topic: LoadedTopic) -> None:
    """Raises ServiceNotReadyError while a topic is unloaded: what is attached to it would be forgotten."""
    if topic.closed:
        raise ServiceNotReadyError(f"{name} is being unloaded; look it up again")


def check_attachable(
    name: TopicName, listed: Mapping[str, ListedSubscription], subscription: ListedSubscription
) -> None:
    """Raises ServiceNotReadyError when no consumer may be attached to a subscription in this turn."""
    if listed.get(subscription.name) is not subscription:
        raise ServiceNotReadyError(
            f"subscription {subscription.name} of {name} was deleted meanwhile; subscribe again"
        )
    if subscription.seeks.is_up:
        raise ServiceNotReadyError(
            f"a seek moves subscription {subscription.name} of {name}; subscribe again"
        )


class SubscriptionLife(Generic[S]):
    """The subscriptions of one topic."""

    __slots__ = ("_drops", "_name", "_topic", "subscriptions")

    def __init__(self, name: TopicName, topic: LoadedTopic) -> None:
        self._name = name
        self._topic = topic
        self._drops: dict[str, Machine[DropState]] = {}
        """Deletions that are under way."""
        self.subscriptions: dict[str, S] = {}
        """Those that are listed, by name."""

    # -- subscribing -------------------------------------------------------------------------------

    def next_for(self, name: str, *, is_opened: bool) -> Next:
        """The next step of a SUBSCRIBE. `is_opened`: it has opened the cursor, and the log still has it:
        a cursor that others deleted meanwhile is a dead one.

        To be asked when no deletion of the name is under way: a subscription that is being deleted still has
        its cursor, and its consumer would wait for ever. Raises ServiceNotReadyError.
        """
        check_open(self._name, self._topic)
        assert name not in self._drops, f"{name} is being deleted: {self._drops[name].story}"
        if name in self.subscriptions:
            return self._next_of(self.subscriptions[name])
        return Next.ADD if is_opened else Next.OPEN_CURSOR

    def next_for_reader(self, name: str) -> Next:
        """As `next_for`, for a reader: its subscription needs no cursor of the log."""
        check_open(self._name, self._topic)
        assert name not in self._drops, f"{name} is being deleted: {self._drops[name].story}"
        return self._next_of(self.subscriptions[name]) if name in self.subscriptions else Next.ADD

    def _next_of(self, existing: S) -> Next:
        return Next.WAIT_FOR_SEEK if existing.seeks.is_up else Next.ATTACH

    def add(self, subscription: S) -> None:
        """A subscription is there now."""
        assert subscription.name not in self.subscriptions, f"there are two: {subscription.name}"
        self.subscriptions[subscription.name] = subscription

    # -- readers -----------------------------------------------------------------------------------

    def leave_reader(self, subscription: ListedSubscription) -> bool:
        """Takes a subscription off that lives as long as its consumers, if it has none; whether it did."""
        return not subscription.durable and not subscription.consumers and self.take_off(subscription)

    def take_off(self, subscription: ListedSubscription) -> bool:
        """Takes a subscription off that needs no deletion; whether it was the topic's still."""
        assert not subscription.durable, "its cursor would stay"
        if self.subscriptions.get(subscription.name) is not subscription:
            return False
        del self.subscriptions[subscription.name]
        return True

    # -- deletion ----------------------------------------------------------------------------------

    def ending(self, subscription: S) -> None:
        """A durable subscription is to be deleted. Raises SubscriptionNotFoundError when it is not the
        topic's any more."""
        name = subscription.name
        assert subscription.durable, "it has no cursor that could be deleted"
        assert name not in self._drops, f"{name} is deleted twice: {self._drops[name].story}"
        if self.subscriptions.get(name) is not subscription:
            raise SubscriptionNotFoundError(f"{self._name} has no subscription {name}")
        self._drops[name] = Machine(f"deletion of {name}", DROP_TRANSITIONS, DropState.ENDING)

    def deleting(self, subscription: S) -> None:
        """Its transactions have ended: it is listed no more, and its cursor is deleted next."""
        name = subscription.name
        self._drops[name].go(DropState.DELETING, "its transactions have ended")
        # A topic that was unloaded meanwhile sent its consumers away and lists it still.
        assert self.subscriptions[name] is subscription, "another one would be taken off"
        del self.subscriptions[name]

    def deleted(self, name: str) -> None:
        """Its cursor is deleted."""
        self._drops.pop(name).go(DropState.DELETED, "its cursor is deleted")

    def failed(self, subscription: S) -> None:
        """It could not be deleted: it is listed again, unless the topic is unloaded."""
        self._drops.pop(subscription.name).go(DropState.FAILED, "it could not be deleted")
        if not self._topic.closed:
            assert self.subscriptions.get(subscription.name) in (None, subscription), "its name was taken"
            self.subscriptions[subscription.name] = subscription

    def check(self) -> None:
        """Asserts what must always hold."""
        for name, subscription in self.subscriptions.items():
            assert subscription.name == name, "a subscription under another name"
            assert not (subscription.seeks.is_up and subscription.consumers), (
                f"{name} has consumers, and the seek that sent them away is not answered yet"
            )
        for name, drop in self._drops.items():
            listed = self.subscriptions.get(name)
            if drop.now is DropState.ENDING:
                assert listed is not None, f"{name} is not listed before its transactions ended: {drop.story}"
            else:
                assert drop.now is DropState.DELETING, f"a deletion that has ended is kept: {drop.story}"
                assert listed is None, f"{name} is listed while its cursor is deleted"

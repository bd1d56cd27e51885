"""A non-persistent topic: what arrives is answered and delivered in the same tick, and forgotten."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial

from magnetar.base.clock import Clock
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.broker.access.producer_access import ProducerAccess
from magnetar.broker.errors import NotAllowedError
from magnetar.broker.nonpersistent.nonpersistent_subscription import NonPersistentSubscription
from magnetar.broker.nonpersistent.unstored_publishing import UnstoredPublishing
from magnetar.broker.subscription.any_subscription import AnySubscription
from magnetar.broker.topic.any_topic import AnyTopic, ReaderStart
from magnetar.broker.topic.producer import Producer


class PassingEpoch:
    """Holds the topic epoch as long as the topic is loaded, in place of a log's properties."""

    terminated: Position | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self._properties: dict[str, str] = {}

    @property
    def properties(self) -> Mapping[str, str]:
        """The known properties, by name."""
        return self._properties

    async def update_properties(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Puts what `change` makes of the properties in their place."""
        self._properties = dict(change(self._properties))


class NonPersistentTopic(AnyTopic):
    """One non-persistent topic or partition."""

    def __init__(
        self, name: TopicName, *, clock: Clock, spawn: Callable[[Coroutine[object, object, object]], None]
    ) -> None:
        self.subscriptions: dict[str, NonPersistentSubscription] = {}
        access: ProducerAccess[Producer] = ProducerAccess(PassingEpoch(str(name)), spawn)
        super().__init__(name, access, clock, partial(UnstoredPublishing, self.subscriptions, clock))
        self._clock = clock
        self._spawn = spawn

    # -- subscriptions -----------------------------------------------------------------------------

    async def subscription(
        self, name: str, *, initial_earliest: bool, start: Position | None, properties: dict[str, str] | None
    ) -> NonPersistentSubscription:
        """The subscription, created when missing; it begins with the next message, whatever is requested."""
        return self._subscription(name, durable=True, properties=properties)

    async def reader(self, name: str, start: ReaderStart) -> NonPersistentSubscription:
        """Begins with the next message, whatever start is requested."""
        return self._subscription(name, durable=False, properties=None)

    def _subscription(
        self, name: str, *, durable: bool, properties: dict[str, str] | None
    ) -> NonPersistentSubscription:
        self._check_open()
        known = self.subscriptions.get(name)
        if known is None:
            self.limits.admit_subscription(self.subscriptions, name)
            known = NonPersistentSubscription(
                self.name,
                name,
                durable=durable,
                properties=properties,
                clock=self._clock,
                spawn=self._spawn,
            )
            known.keep(self.limits.of_subscription(name))
            self.subscriptions[name] = known
        return known

    async def last_message(self) -> tuple[Position, int]:
        raise NotAllowedError(f"{self.name} is not persistent: it has no last message")

    async def drop_subscription(self, subscription: AnySubscription) -> None:
        self.subscriptions.pop(subscription.name, None)
        subscription.detach_all()

    def leave_reader(self, subscription: AnySubscription) -> None:
        current = self.subscriptions.get(subscription.name) is subscription
        if current and not subscription.durable and not subscription.consumers:
            del self.subscriptions[subscription.name]

    # -- life cycle --------------------------------------------------------------------------------

    async def close(self) -> None:
        self.disconnect_clients()

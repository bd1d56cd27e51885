"""The loaded persistent topics of a broker: one object per name, whatever happens concurrently.

A name is in one state of `states.py` at any time. Loading, unloading and deleting are *flights*: pieces of
work that belong to the registry, not to their first caller. A caller that wants something else of the name
waits for the flight to land and looks again; one that wants the same joins it. A cancelled caller leaves the
flight in the air, for others.

The race that this prevents: a consumer's lookup (which may create the topic) and a statistics call (which may
not) both found a topic unloaded and both loaded it. The log has one listener, the second object: producers of
the first waited for receipts for ever, its consumers for messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Final, Protocol

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError
from magnetar.base.names import TopicName
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.registry.registry_rules import REGISTRY_RULES, RegistryRules
from magnetar.broker.registry.topic_states import IN_FLIGHT, TRANSITIONS, TopicState
from magnetar.broker.topic.topic import Topic
from magnetar.runtime.flights import Flight
from magnetar.runtime.tasks import gathered

_log = logging.getLogger("magnetar.broker")

WAIT_S: Final = 25.0
"""Seconds that a caller waits for work on a name before it is told to retry: shorter than the 30 s after
which clients give up without a reason."""


_CLOSED_TOGETHER: Final = 100
"""Topics that are closed at the same time when the broker stops."""


class TopicStorage(Protocol):
    """The storage below the registry."""

    async def load(self, name: TopicName, *, create: bool) -> Topic:
        """A new object over the topic's log. Raises MagnetarError; then nothing of it is left open."""

    async def delete(self, name: TopicName, topic: Topic | None) -> None:
        """Deletes the topic's data. `topic`: its object, which has sent its clients away."""


class _Work:
    """A flight of one name."""

    __slots__ = ("began_ms", "create", "flight", "state")

    def __init__(self, state: TopicState, began_ms: float, *, create: bool) -> None:
        self.state = state
        self.began_ms = began_ms
        self.create = create
        """For a load: whether it may create the topic."""

    flight: Flight[None]


class TopicRegistry:
    """Which topics are there. Every check and the act that follows from it happen in one turn of the loop."""

    def __init__(
        self,
        storage: TopicStorage,
        clock: Clock,
        *,
        wait_s: float = WAIT_S,
        rules: RegistryRules = REGISTRY_RULES,
    ) -> None:
        """`wait_s`: how long callers wait for work that others began, or they themselves."""
        self.topics: dict[str, Topic] = {}
        """Objects that are there, by full name: loaded, failed, or being unloaded."""
        self.draining = False
        """Whether nothing is loaded any more."""
        self.ended = 0
        """Topics that were unloaded or deleted."""
        self._storage = storage
        self._rules = rules
        self._clock = clock
        self._wait_ms = wait_s * 1000
        self._work: dict[str, _Work] = {}

    # -- questions ---------------------------------------------------------------------------------

    def state(self, name: str) -> TopicState:
        """The state of the name."""
        work = self._under_way(name)
        if work is not None:
            return work.state
        topic = self.topics.get(name)
        if topic is None:
            return TopicState.ABSENT
        return TopicState.FAILED if topic.closed else TopicState.LOADED

    def under_way(self) -> Iterator[tuple[str, TopicState, float]]:
        """Names that work is under way on: what, and since which time of the monotonic clock, ms."""
        for name, work in list(self._work.items()):
            yield name, work.state, work.began_ms

    def _under_way(self, name: str) -> _Work | None:
        work = self._work.get(name)
        if work is not None and work.flight.landed:
            # It was cancelled before it began, so that it could not clear this itself.
            del self._work[name]
            return None
        return work if work is None or self._rules.waits_for(work.state) else None

    # -- what callers want -------------------------------------------------------------------------

    async def get(self, name: TopicName, *, create: bool) -> Topic:
        """The loaded topic; loads it when it is not there.

        Raises what loading raises, and ServiceNotReadyError when the name is not free in WAIT_S.
        """
        key = str(name)
        until_ms = self._clock.monotonic_ms() + self._wait_ms
        while True:
            work = self._under_way(key)
            mine = False
            if work is None:
                topic = self.topics.get(key)
                if topic is not None and not topic.closed:
                    return topic
                self.check_serving()
                # Nothing is awaited since the check: otherwise another caller could begin a flight in
                # between.
                if topic is not None:
                    work = self._begin(key, TopicState.UNLOADING, self._unload(key, topic))
                else:
                    mine = True
                    work = self._begin(
                        key, TopicState.LOADING, self._load(key, name, create=create), create=create
                    )
            try:
                await self._landing(key, work, until_ms)
            except MagnetarError:
                # The refusal of a caller that may not create anything does not apply to one that may, and the
                # other way round. And the failure of a deletion concerns only its caller.
                if work.state is TopicState.LOADING and (mine or work.create == create):
                    raise

    async def unload(self, name: TopicName, *, only_if: Callable[[Topic], bool] | None = None) -> bool:
        """Closes the topic's object, if there is one; returns whether there was.

        `only_if` is called in the turn in which the unloading begins, when a client may have come since.
        """
        key = str(name)
        until_ms = self._clock.monotonic_ms() + self._wait_ms
        while True:
            work = self._under_way(key)
            begun = work is None
            if work is None:
                topic = self.topics.get(key)
                if topic is None or (only_if is not None and not only_if(topic)):
                    return False
                # Here and not when the flight begins to run: no client attaches in between.
                topic.closed = True
                work = self._begin(key, TopicState.UNLOADING, self._unload(key, topic))
            await self._landing_of_any(key, work, until_ms)
            if begun or work.state is TopicState.UNLOADING:
                return True

    async def delete(self, name: TopicName, *, admit: Callable[[Topic], None] | None) -> None:
        """Deletes the topic with its data.

        `admit` raises while that must not be; it is asked in the turn in which the deletion begins. None: it
        must be, also when the topic cannot be loaded. Raises TopicNotFoundError, what `admit` raises, and why
        data could not be deleted: then it can be tried again.
        """
        key = str(name)
        until_ms = self._clock.monotonic_ms() + self._wait_ms
        while True:
            work = self._under_way(key)
            if work is not None:
                await self._landing_of_any(key, work, until_ms)
                continue
            topic = self.topics.get(key)
            if admit is not None:
                if topic is None or topic.closed:
                    await self.get(name, create=False)
                    continue
                admit(topic)
            # Nothing is awaited since the check.
            if topic is not None:
                topic.disconnect_clients()
            work = self._begin(key, TopicState.DELETING, self._delete(key, name, topic))
            self.topics.pop(key, None)
            await self._landing(key, work, until_ms)
            return

    async def unload_all(self) -> None:
        """Closes every topic, including those that are being loaded; logs those that do not end in time."""
        while names := list(dict.fromkeys([*self.topics, *self._work])):
            for start in range(0, len(names), _CLOSED_TOGETHER):
                # Together, so that they share the commits.
                await gathered(self._unload_last(name) for name in names[start : start + _CLOSED_TOGETHER])
            if all(self.state(name) is not TopicState.ABSENT for name in names):
                return

    async def _unload_last(self, name: str) -> None:
        try:
            await self.unload(TopicName.parse(name))
        except MagnetarError as error:
            # One topic's trouble must not keep the others loaded; its log is recovered when next opened.
            _log.warning("%s", error)

    async def close(self) -> None:
        """Ends what is still under way."""
        for work in list(self._work.values()):
            await work.flight.cancel()

    async def settled(self, name: TopicName) -> None:
        """Returns when no deletion of the name is under way. Raises ServiceNotReadyError after WAIT_S."""
        key = str(name)
        until_ms = self._clock.monotonic_ms() + self._wait_ms
        while (work := self._under_way(key)) is not None and work.state is TopicState.DELETING:
            await self._landing_of_any(key, work, until_ms)

    # -- flights -----------------------------------------------------------------------------------

    def _begin(
        self, key: str, state: TopicState, work: Coroutine[object, object, None], *, create: bool = False
    ) -> _Work:
        now = self.state(key)
        assert state in TRANSITIONS[now], f"{key} is {now.value} and cannot be {state.value}"
        begun = self._work[key] = _Work(state, self._clock.monotonic_ms(), create=create)
        begun.flight = self._rules.flight(work)
        return begun

    async def _landing(self, key: str, work: _Work, until_ms: float) -> None:
        now_ms = self._clock.monotonic_ms()
        try:
            await work.flight.landing((until_ms - now_ms) / 1000)
        except TimeoutError as error:
            waited_s = (self._clock.monotonic_ms() - work.began_ms) / 1000
            raise ServiceNotReadyError(
                f"{key} has been {work.state.value} for {waited_s:.0f} s: its storage has not answered yet;"
                " look the topic up again"
            ) from error

    async def _landing_of_any(self, key: str, work: _Work, until_ms: float) -> None:
        """The same for a caller that did not request the work: its failure is ignored."""
        try:
            await self._landing(key, work, until_ms)
        except MagnetarError:
            if not work.flight.landed:
                raise

    async def _load(self, key: str, name: TopicName, *, create: bool) -> None:
        try:
            topic = await self._storage.load(name, create=create)
            assert key not in self.topics, f"{key} has an object already"
            assert str(topic.name) == key, f"{topic.name} was loaded for {key}"
            # With the end of the flight, in one turn.
            self.topics[key] = topic
        finally:
            del self._work[key]

    async def _unload(self, key: str, topic: Topic) -> None:
        try:
            await topic.close()
        except MagnetarError as error:
            # Closed all the same; acknowledged messages are durable, and loading recovers them.
            _log.warning("%s was not closed cleanly: %s", key, error)
        finally:
            self._gone(key)

    async def _delete(self, key: str, name: TopicName, topic: Topic | None) -> None:
        try:
            await self._storage.delete(name, topic)
            _log.info("topic deleted: %s", key)
        finally:
            self._gone(key)

    def _gone(self, key: str) -> None:
        work = self._work.pop(key)
        assert work.state in (TopicState.UNLOADING, TopicState.DELETING), f"{key} ends {work.state.value}"
        self.topics.pop(key, None)
        self.ended += 1

    def check_serving(self) -> None:
        """Raises ServiceNotReadyError while the broker shuts down."""
        if self.draining:
            raise ServiceNotReadyError("the broker is shutting down; look the topic up again")

    def check(self) -> None:
        """Asserts what must always hold."""
        for key, work in self._work.items():
            assert work.state in IN_FLIGHT, f"work is under way on {key}, which is {work.state.value}"
            unloading = work.state is TopicState.UNLOADING
            assert unloading or work.flight.landed or key not in self.topics, f"{key} is {work.state.value}"
            assert not work.create or work.state is TopicState.LOADING, "only the loading call may create"
        logs: dict[str, str] = {}
        work_on = self._work.get
        for key, topic in self.topics.items():
            # `state` itself costs four times as much, and there are thousands of topics after each step.
            state = TopicState.FAILED if topic.closed else TopicState.LOADED
            current = work_on(key)
            if current is not None and not current.flight.landed:
                state = current.state
            assert str(topic.name) == key
            assert state in (TopicState.LOADED, TopicState.FAILED, TopicState.UNLOADING), (
                f"{key} is {state.value} and has an object"
            )
            if state is TopicState.LOADED:
                assert topic.log.listener is topic, f"{key}: another object hears of its log"
            assert logs.setdefault(topic.log.name, key) == key, f"{key} shares its log"

"""Access of producers to one topic: the rules, the epoch in the log's properties, and the notices to
producers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import Position
from magnetar.broker.access.access_state import AccessState, Admission, ProducerCandidate, Turn
from magnetar.broker.errors import ProducerFencedError, TopicTerminatedError

_log = logging.getLogger("magnetar.broker.access")

EPOCH_PROPERTY: Final = "pulsar.topic.epoch"
"""Property of the log that holds the topic epoch (Pulsar's name), a decimal number."""


OwnProducer = Any
"""A producer of the topic that this room is plugged into. Its type has its connection, and the connection has
methods that take it: no type variable can say that."""


class ProducerOutlet(Protocol):
    """What the room needs of a producer's connection."""

    def producer_detached(self, producer: OwnProducer) -> None:
        """The producer was attached and is not any more: the client looks the topic up again."""

    def producer_ready(self, producer: OwnProducer) -> None:
        """The producer, which was queued or waited for its epoch, may publish."""

    def producer_refused(self, producer: OwnProducer, error: MagnetarError) -> None:
        """The producer, which was queued or waited for its epoch, will not publish."""


class Attachable(ProducerCandidate, Protocol):
    """A producer, as far as the room handles it."""

    topic_epoch: int | None
    ready: bool
    """Whether it may publish; set here."""

    @property
    def connection(self) -> ProducerOutlet: ...


class EpochHome(Protocol):
    """Where the topic's epoch is stored: its log, or memory."""

    @property
    def name(self) -> str: ...

    @property
    def properties(self) -> Mapping[str, str]: ...

    @property
    def terminated(self) -> Position | None:
        """The last position of a terminated topic; None for others."""

    async def update_properties(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Changes the properties in one step. Raises MagnetarError when they cannot be kept."""


P = TypeVar("P", bound=Attachable)


class ProducerAccess(Generic[P]):
    """Plugged into a topic; see the room's README."""

    def __init__(self, log: EpochHome, spawn: Callable[[Coroutine[object, object, object]], None]) -> None:
        """`spawn` runs the writes of epochs."""
        self._log = log
        self._spawn = spawn
        stored = log.properties.get(EPOCH_PROPERTY)
        self.state: AccessState[P] = AccessState(None if stored is None else int(stored))

    @property
    def producers(self) -> dict[str, P]:
        """Attached producers by name, including one whose epoch is being stored."""
        return self.state.members

    @property
    def waiting_count(self) -> int:
        """Producers in line."""
        return len(self.state.waiting)

    def attach(self, producer: P) -> Admission:
        """Admits a producer. Unless it JOINED, its connection is told the outcome later.

        Raises ProducerBusyError, ProducerFencedError.
        """
        entry = self.state.enter(producer)
        for each in entry.sent_away:
            self._send_away(each)
        for each in entry.refused:
            self._fence(each)
        if entry.admission is Admission.GRANTED:
            self._grant(producer)
        elif entry.admission is Admission.JOINED:
            producer.topic_epoch = self.state.epoch
            producer.ready = True
        return entry.admission

    def detach(self, producer: P) -> None:
        """A producer left; the next waiting one gets its turn."""
        producer.ready = False
        self._take_turn(self.state.leave(producer))

    def clear(self, error: MagnetarError) -> None:
        """The topic closes: detaches all producers, and fails the waiting ones with `error`."""
        members, waiting = list(self.state.members.values()), list(self.state.waiting)
        self.state.members.clear()
        self.state.waiting.clear()
        self.state.holder = None
        for producer in members:
            if producer.ready:
                self._send_away(producer)
            else:
                producer.connection.producer_refused(producer, error)
        for producer in waiting:
            producer.connection.producer_refused(producer, error)

    def _send_away(self, producer: P) -> None:
        if producer.ready:
            producer.ready = False
            producer.connection.producer_detached(producer)
        else:
            self._fence(producer)

    def _fence(self, producer: P) -> None:
        error = ProducerFencedError("another producer has taken exclusive access to the topic")
        producer.connection.producer_refused(producer, error)

    def _take_turn(self, turn: Turn[P]) -> None:
        for producer in turn.refused:
            self._fence(producer)
        if turn.granted is None:
            return
        if self._log.terminated is not None:
            ended = TopicTerminatedError("the topic is terminated and takes no more messages")
            turn.granted.connection.producer_refused(turn.granted, ended)
            self._take_turn(self.state.leave(turn.granted))
            return
        self._grant(turn.granted)

    def _grant(self, producer: P) -> None:
        epoch, before = self.state.reserve_epoch()
        self._spawn(self._store_epoch(producer, epoch, before))

    async def _store_epoch(self, producer: P, epoch: int, before: int | None) -> None:
        """Stores the epoch. Its holder is told only after it is durable: a broker that takes over the topic
        must know every epoch that a client was ever told."""
        if self.state.holder is not producer:
            return
        try:
            if epoch != before:
                await self._log.update_properties(
                    lambda properties: {**properties, EPOCH_PROPERTY: str(epoch)}
                )
        except MagnetarError as error:
            _log.error("%s: epoch %d could not be stored: %s", self._log.name, epoch, error)
            if self.state.holder is producer:
                turn = self.state.grant_failed(producer, epoch, before)
                producer.connection.producer_refused(producer, error)
                self._take_turn(turn)
            return
        if self.state.holder is producer:
            producer.topic_epoch = epoch
            producer.ready = True
            producer.connection.producer_ready(producer)

"""A producer for one call, which publishes a vector and waits until all messages are durable or refused."""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import Position
from magnetar.broker.errors import RefusedError, ServiceNotReadyError
from magnetar.broker.topic.any_topic import AnyTopic
from magnetar.broker.topic.producer import OwnConnection, Producer
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import SendRun

DEADLINE_S: Final = 30.0
"""Seconds without an acknowledgement after which the call is answered 503."""

Outcome = Position | MagnetarError | None
"""Position of a message, or the error; None for a duplicate or a topic that stores nothing."""


class OneCall(OwnConnection):
    """The producer's connection, which receives the outcome of each message, in order."""

    def __init__(self, count: int) -> None:
        self._outcomes: list[Outcome] = []
        self._count = count
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def outcomes(self) -> list[Outcome]:
        """The outcomes of all messages. Raises MagnetarError when the producer was detached."""
        async with asyncio.timeout(DEADLINE_S):
            await self._done
        return self._outcomes

    def _add(self, outcomes: list[Outcome]) -> None:
        self._outcomes += outcomes
        if len(self._outcomes) >= self._count and not self._done.done():
            self._done.set_result(None)

    def _fail(self, error: MagnetarError) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    # -- what a topic tells a producer's connection

    def receipts(
        self,
        producer: Producer,
        sequence_ids: list[int],
        highest_ids: list[int] | None,
        position: Position | None,
    ) -> None:
        if position is None:
            self._add([None] * len(sequence_ids))
        else:
            first = position
            self._add([Position(first.ledger_id, first.entry_id + i) for i in range(len(sequence_ids))])

    def unstored_receipts(
        self, producer: Producer, sequence_ids: list[int], highest_ids: list[int] | None
    ) -> None:
        self._add([None] * len(sequence_ids))

    def send_errors(
        self, producer: Producer, sequence_ids: list[int], code: pb.ServerError, message: str
    ) -> None:
        self._add([RefusedError(message) for _ in sequence_ids])

    def producer_detached(self, producer: Producer) -> None:
        self._fail(ServiceNotReadyError("the topic was closed meanwhile; try again"))

    def producer_refused(self, producer: Producer, error: MagnetarError) -> None:
        self._fail(error)


async def publish(topic: AnyTopic, producer_name: str, run: SendRun) -> list[Outcome]:
    """Publishes the run with a new producer; returns the outcome of each entry.

    Raises ServiceNotReadyError, and the errors of `AnyTopic.attach_producer`.
    """
    topic.limits.admit_producer(topic.producers, producer_name, encrypted=False)
    return await send(topic, producer_name, run)


async def send(topic: AnyTopic, producer_name: str, run: SendRun) -> list[Outcome]:
    """As `publish`, but not subject to the topic's limit of producers."""
    connection = OneCall(len(run.entries))
    producer = Producer(producer_id=run.producer_id, name=producer_name, connection=connection)
    topic.attach_producer(producer)
    try:
        topic.publish(producer, run)
        return await connection.outcomes()
    except TimeoutError as error:
        raise ServiceNotReadyError(f"no acknowledgement within {DEADLINE_S:g} s") from error
    finally:
        topic.detach_producer(producer)

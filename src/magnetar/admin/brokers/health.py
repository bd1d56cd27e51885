"""Checks the health of this broker: publishes a message, durably, and reads it back.

The message takes the path of all messages: a producer of the topic `pulsar/system/healthcheck`, the log, the
group commit and the read path. With several brokers each has its own topic, `healthcheck-HOST:PORT`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.admin.produce.one_call import send
from magnetar.base.ids import Position, ProducerId
from magnetar.base.names import PERSISTENT, TopicName
from magnetar.broker.errors import PersistenceFailedError, ServiceNotReadyError
from magnetar.broker.service import Broker
from magnetar.broker.topic.topic import Topic
from magnetar.wire import payload
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import SendRun

TOPIC: Final = TopicName.of(PERSISTENT, "pulsar", "system", "healthcheck")
TIMEOUT_S: Final = 10.0
"""Seconds without an acknowledgement after which the broker counts as broken."""


async def check_health(broker: Broker) -> None:
    """Raises MagnetarError, which names the part that does not work."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            topic = await broker.topic(TOPIC if broker.owners is None else broker.owners.health_topic)
            entry = _entry(broker)
            position = await _publish(topic, broker, entry)
            runs = await topic.log.read(position, 1, 1)
    except TimeoutError as error:
        raise ServiceNotReadyError(f"no acknowledgement within {TIMEOUT_S:g} s") from error
    if not runs or runs[0].entries[0] != entry:
        raise PersistenceFailedError(f"what was published at {position} is not what is read there")


def _entry(broker: Broker) -> bytes:
    now_ms = broker.clock.now_ms()
    metadata = pb.MessageMetadata(producer_name="health", sequence_id=0, publish_time=now_ms)
    return payload.build_entry(metadata, str(now_ms).encode())


async def _publish(topic: Topic, broker: Broker, entry: bytes) -> Position:
    run = SendRun(ProducerId(0))
    run.add(0, 1, None, entry, good=True)
    run.size_bytes = len(entry)
    (outcome,) = await send(topic, f"health-{broker.new_producer_name()}", run)
    if isinstance(outcome, Position):
        return outcome
    raise PersistenceFailedError(str(outcome or "the check's message was taken for a duplicate"))

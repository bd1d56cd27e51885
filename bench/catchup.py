"""A reader that starts at the beginning of a backlog."""

from __future__ import annotations

import select
import time
from typing import Final

from bench.driver import Driver
from bench.meter import Meter, no_garbage_collection
from bench.publisher import Publisher
from bench.scan import BrokerAnswerError
from bench.throughput import publish_all

PAUSE_S: Final = 3.0
FILL_S: Final = 45.0
STALL_S: Final = 30.0


def run(
    driver: Driver,
    topic: str,
    meter: Meter,
    *,
    messages: int,
    payload_bytes: int,
    messages_per_entry: int,
    queue_messages: int,
) -> dict[str, float]:
    """Publish a backlog in batches, wait three seconds, read it all with one reader.

    A broker that takes longer than FILL_S for the backlog gets a smaller one.
    """
    entries = messages // messages_per_entry
    driver.keep(topic)
    lane = driver.lane(topic, payload_bytes=payload_bytes, messages_per_entry=messages_per_entry)
    publisher = Publisher(lane, entries_max=entries)
    fill_start, fill_end = publish_all([publisher], meter, seconds_max=FILL_S)
    entries = publisher.entries_sent
    messages = entries * messages_per_entry
    time.sleep(PAUSE_S)
    reader = driver.consumer(topic, queue_messages=queue_messages, backlog=True)
    poll = select.poll()
    poll.register(reader.socket, select.POLLIN)
    with no_garbage_collection():
        start = meter.now()
        reader.start(publisher.template)
        while reader.entries_received < entries:
            if not poll.poll(STALL_S * 1000):
                raise BrokerAnswerError(
                    f"no message for {STALL_S:.0f} s after {reader.entries_received} of {entries} entries"
                )
            reader.receive()
        end = meter.now()
    reader.socket.close()
    metrics = meter.metrics(start, end, messages=messages, payload_bytes=messages * payload_bytes)
    metrics["checksums_verified"] = float(reader.checks)
    metrics["fill_messages_per_s"] = messages / (fill_end.wall_s - fill_start.wall_s)
    return metrics

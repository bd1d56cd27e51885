"""The official Python client, quiet and impatient."""

from __future__ import annotations

from typing import Any

import pulsar

from support.standalone import StandaloneProcess

TIMEOUT_MS = 10_000
"""For a message that must come."""
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def connect(standalone: StandaloneProcess, **options: Any) -> pulsar.Client:
    """A client of the plain port; `options` are its own."""
    return pulsar.Client(
        standalone.broker_url, **{"operation_timeout_seconds": 10, "logger": QUIET, **options}
    )


def receive_all(consumer: pulsar.Consumer, count: int, *, ack: bool = True) -> list[bytes]:
    """The next payloads, acknowledged unless told otherwise."""
    found = []
    for _ in range(count):
        message = consumer.receive(TIMEOUT_MS)
        found.append(message.data())
        if ack:
            consumer.acknowledge(message)
    return found

"""A machine's clock is set by hours, ahead and back, under a broker, its bookies and their clients."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pulsar
import pytest

from support import clock_steps
from support.clock_steps import HOUR_S, ClockSteps
from support.official import TIMEOUT_MS, connect
from support.standalone import StandaloneProcess

pytestmark = [
    pytest.mark.one_process("kills"),
    pytest.mark.process,
    pytest.mark.skipif(clock_steps.why_impossible() is not None, reason=str(clock_steps.why_impossible())),
]

TYPES = {"shared": pulsar.ConsumerType.Shared, "failover": pulsar.ConsumerType.Failover}
MESSAGES = 20
"""On each topic, whenever the clock was set."""
DELAY_S = 1.0


class Lane:
    """A topic with one producer and one consumer, which stay."""

    def __init__(self, client: pulsar.Client, standalone: StandaloneProcess, topic: str) -> None:
        self._standalone = standalone
        self.topic = topic
        self.producer = client.create_producer(topic, batching_enabled=False)
        self.consumer = client.subscribe(topic, "s", TYPES[topic])
        self.sent = 0

    def statistics(self) -> Any:
        return self._standalone.admin("GET", f"persistent/public/default/{self.topic}/stats")

    @property
    def connected_since(self) -> Any:
        return self.statistics()["subscriptions"]["s"]["consumers"][0]["connectedSince"]

    def publish_and_receive(self) -> None:
        for _ in range(MESSAGES):
            self.sent += 1
            self.producer.send(b"%d" % self.sent)
            message = self.consumer.receive(TIMEOUT_MS)
            assert message.data() == b"%d" % self.sent
            self.consumer.acknowledge(message)

    def delayed(self, hours: float) -> None:
        """A message for in a second comes then."""
        self.sent += 1
        due_ms = int((time.time() + hours * HOUR_S + DELAY_S) * 1_000)
        began_s = time.monotonic()
        self.producer.send(b"%d" % self.sent, deliver_at=due_ms)
        message = self.consumer.receive(TIMEOUT_MS)
        assert message.data() == b"%d" % self.sent
        assert time.monotonic() - began_s > DELAY_S / 2
        self.consumer.acknowledge(message)


@pytest.mark.parametrize("options", [(), ("--bookies", "3")], ids=["store", "bookies"])
def test_clients_of_a_clock_that_is_set_by_hours_notice_nothing(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    clock = ClockSteps(tmp_path / "ahead")
    standalone = StandaloneProcess(tmp_path / "broker", options=options, environment=clock.environment)
    with standalone:
        kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        standalone.admin("POST", "namespaces/public/default/retention", kept)
        client = connect(standalone)
        lanes = [Lane(client, standalone, topic) for topic in TYPES]
        connected = [lane.connected_since for lane in lanes]
        for hours in (0, 5, -5, 48, 0):
            clock.set(hours)
            for lane in lanes:
                lane.publish_and_receive()
            lanes[0].delayed(hours)
            rates = [lane.statistics()["msgRateIn"] for lane in lanes]
            assert min(rates) > 0.1, f"{MESSAGES} messages within seconds: {rates}"
        assert [lane.connected_since for lane in lanes] == connected, "somebody had to connect again"
        client.close()
        standalone.kill()
        clock.set(3)
        standalone.start()
        client = connect(standalone)
        for lane in lanes:
            reader = client.create_reader(lane.topic, pulsar.MessageId.earliest)
            found = [reader.read_next(TIMEOUT_MS).data() for _ in range(lane.sent)]
            assert found == [b"%d" % number for number in range(1, lane.sent + 1)]
            assert not reader.has_message_available()
        client.close()

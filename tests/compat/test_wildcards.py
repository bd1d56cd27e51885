"""The official Python client, unmodified, on topics whose names a wildcard tells."""

from __future__ import annotations

import uuid

import pulsar
import pytest

from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("alone")]

ANSWER_MS = 20_000


def test_one_consumer_follows_all_topics_that_match(
    client: pulsar.Client, standalone: StandaloneProcess
) -> None:
    root = f"w{uuid.uuid4().hex}"

    def publish(name: str, text: bytes) -> None:
        producer = client.create_producer(f"persistent://public/default/{root}.{name}")
        producer.send(text)
        producer.close()

    publish("nyc.loot", b"1")
    publish("sfo.chat", b"no")
    consumer = client.subscribe(
        f"persistent://public/default/{root}.*.loot",
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    publish("sfo.loot", b"2")
    publish("nyc.loot", b"3")
    got = [consumer.receive(ANSWER_MS) for _ in range(3)]
    assert sorted(message.data() for message in got) == [b"1", b"2", b"3"]
    for message in got:
        consumer.acknowledge(message)

    def settled() -> bool:
        stats = [
            standalone.admin("GET", f"persistent/public/default/{root}.{name}.loot/stats")
            for name in ("nyc", "sfo")
        ]
        return all(each["subscriptions"]["s"]["msgBacklog"] == 0 for each in stats)

    wait_until(settled, 20, "acknowledged on each topic")
    listed = standalone.admin("GET", f"persistent/public/default?match={root}.**.loot")
    assert listed == [f"persistent://public/default/{root}.{name}.loot" for name in ("nyc", "sfo")]
    consumer.negative_acknowledge(got[0])
    consumer.unsubscribe()
    assert "s" not in standalone.admin("GET", f"persistent/public/default/{root}.nyc.loot/subscriptions")

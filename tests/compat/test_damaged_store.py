"""Damage in the active segment, with the official client: topics open, nothing false, nothing silent."""

from __future__ import annotations

import random
from contextlib import closing, suppress

import pulsar
import pytest

from support.official import connect
from support.standalone import StandaloneProcess
from support.storage import segments

pytestmark = [pytest.mark.process, pytest.mark.one_process("folder")]

TOPICS = [f"persistent://public/default/hurt-{number}" for number in range(30)]
MESSAGES = 40
DAMAGE_BYTES = 1400
WAIT_MS = 3_000


def received(consumer: pulsar.Consumer) -> list[bytes]:
    found = []
    while True:
        try:
            message = consumer.receive(timeout_millis=WAIT_MS)
        except pulsar.Timeout:
            return found
        consumer.acknowledge(message)
        found.append(message.data())


def test_1400_damaged_bytes_cost_their_blocks_and_no_topic(standalone_folder: StandaloneProcess) -> None:
    """They kept 20 of 30 topics from opening, and nothing got past it."""
    process = standalone_folder.start()
    client = connect(process)
    producers = [client.create_producer(topic, batching_enabled=False) for topic in TOPICS]
    for topic in TOPICS:
        client.subscribe(topic, "s").close()
    for number in range(MESSAGES):
        for topic, producer in zip(TOPICS, producers, strict=True):
            producer.send(f"{topic} {number}".encode())
    process.kill()
    # Its producers cannot be closed at a broker that is gone: the client says so, or not, as its threads run.
    with suppress(pulsar.NotConnected):
        client.close()
    # The last blocks of many topics.
    wanted = f"{TOPICS[5]} {MESSAGES - 1}".encode()
    path = next(path for path in segments(process.data_dir / "bookie") if wanted in path.read_bytes())
    at = path.read_bytes().index(wanted)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(random.Random(4).randbytes(DAMAGE_BYTES))
    process.start()
    lost = 0
    with closing(connect(process)) as client:
        for topic in TOPICS:
            # First what is new: a hole holds up no producer.
            producer = client.create_producer(topic)
            producer.send(f"{topic} new".encode())
            producer.close()
        process.admin("POST", "brokers/configuration/autoSkipNonRecoverableData/true")
        for topic in TOPICS:
            consumer = client.subscribe(topic, "s")
            found = received(consumer)
            sent = [f"{topic} {number}".encode() for number in range(MESSAGES)]
            assert found[-1] == f"{topic} new".encode()
            assert found[:-1] == sent[: len(found) - 1], "nothing false, in order"
            assert len(found) >= MESSAGES
            lost += MESSAGES + 1 - len(found)
            consumer.close()
    assert 0 < lost <= 1 + DAMAGE_BYTES // 150
    text = process.log_text()
    assert "synced bytes do not match their checksum" in text
    assert "may have further entries after entry" in text or "are skipped" in text

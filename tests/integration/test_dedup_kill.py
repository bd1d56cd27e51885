"""Deduplication through kill -9: a producer sends again far more than it must, and the log holds it once."""

from __future__ import annotations

import random

import pytest

from support.raw_client import RawClient
from support.sessions import Type, send
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.one_process("kills")]

ROUNDS = 6
TOPIC = "persistent://public/default/dedup-kill"
NAME = "p"


def last_sequence(client: RawClient) -> int:
    """Opens the producer; the number that the broker says it has."""
    answer = client.ask(
        Type.PRODUCER,
        topic=TOPIC,
        producer_id=1,
        request_id=1,
        producer_name=NAME,
        user_provided_producer_name=True,
    )
    return int(answer.last_sequence_id)


def test_numbers_are_stored_once_through_kills(standalone_folder: StandaloneProcess) -> None:
    process = StandaloneProcess(standalone_folder.folder, environment={"MAGNETAR_DEDUPLICATION": "true"})
    chance = random.Random(4)
    sent = acknowledged = 0
    try:
        for _ in range(ROUNDS):
            process.start()
            with RawClient(process.broker_url) as client:
                known = last_sequence(client)
                assert known >= acknowledged - 1, "the broker forgot what it acknowledged"
                again = range(max(0, known - 300), sent)
                client.send(*(send(1, i, b"%d" % i) for i in again))
                goal = chance.randrange(20, 3000)
                receipts = 0
                while receipts < goal:
                    client.send(*(send(1, i, b"%d" % i) for i in range(sent, sent + 50)))
                    sent += 50
                    client.read(0.001)
                    receipts = len(client.receipts)
                process.kill()
                while not client.closed:
                    client.read()
                numbers = [sequence_id for sequence_id, _ in client.receipts]
                assert numbers == list(range(again.start, again.start + len(numbers)))
                acknowledged = max(acknowledged, numbers[-1] + 1)
        process.start()
        with RawClient(process.broker_url) as client:
            known = last_sequence(client)
            assert known >= acknowledged - 1
            client.send(*(send(1, i, b"%d" % i) for i in range(sent + 1)))
            client.wait(lambda: len(client.receipts) == sent + 1, "receipts")
            client.open_consumer(TOPIC, kind="Exclusive", permits=sent + 100)
            client.wait(lambda: client.bodies and client.bodies[-1] == b"%d" % sent, "the last message")
            assert client.bodies == [b"%d" % i for i in range(sent + 1)]
    finally:
        process.kill()

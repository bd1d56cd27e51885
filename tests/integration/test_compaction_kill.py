"""Compaction through kill -9: whatever phase it is in, no key loses its last value."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.payload import build_entry, parse_metadata, split_entry
from magnetar.wire.sends import encode_send
from support.raw_client import RawClient
from support.sessions import Type
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("kills")]

TOPIC = "persistent://public/default/compaction-kill"
KEYS = 500
MESSAGES = 4_000


def call(process: StandaloneProcess, method: str, what: str) -> Any:
    return process.admin(method, f"{TOPIC.replace('://', '/')}/{what}")


def publish(process: StandaloneProcess, first: int) -> None:
    with RawClient(process.broker_url) as client:
        client.ask(Type.PRODUCER, topic=TOPIC, producer_id=1, request_id=1)
        frames = []
        for number in range(first, first + MESSAGES):
            metadata = pb.MessageMetadata(
                producer_name="p", sequence_id=number, publish_time=1, partition_key=f"k{number % KEYS}"
            )
            frames.append(encode_send(1, number, 1, build_entry(metadata, b"%d" % number)))
        client.send(*frames)
        client.wait(lambda: len(client.receipts) == MESSAGES, "all receipts")


def compacted(process: StandaloneProcess, last: str) -> list[tuple[str, bytes]]:
    """What a reader of the compacted view gets, up to the value `last`."""
    with RawClient(process.broker_url) as client:
        client.ask(
            Type.SUBSCRIBE,
            topic=TOPIC,
            subscription="reader",
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=1,
            request_id=1,
            durable=False,
            read_compacted=True,
            initialPosition=pb.CommandSubscribe.InitialPosition.Earliest,
        )
        client.send(encode_flow(1, 100_000))
        client.wait(lambda: client.bodies[-1:] == [last.encode()], "the last message")
        parts = [split_entry(message.entry) for message in client.messages]
    return [(parse_metadata(each.metadata).partition_key, bytes(each.payload)) for each in parts]


def test_no_key_loses_its_last_value_through_kills(standalone_folder: StandaloneProcess) -> None:
    process = StandaloneProcess(standalone_folder.folder)
    try:
        for round_number in range(6):
            process.start()
            first = round_number * MESSAGES
            publish(process, first)
            call(process, "PUT", "compaction")
            # Each round is killed a little later: in the first pass, in the second, around the switch.
            for _ in range(round_number * 6):
                call(process, "GET", "compaction")
            process.kill()
            process.start()
            last = first + MESSAGES
            expected = {f"k{number % KEYS}": b"%d" % number for number in range(last - KEYS, last)}
            assert dict(compacted(process, str(last - 1))) == expected
            process.kill()
        process.start()
        call(process, "PUT", "compaction")
        wait_until(lambda: call(process, "GET", "compaction")["status"] != "RUNNING", 20, "it ends")
        assert call(process, "GET", "compaction")["status"] == "SUCCESS"
        found = compacted(process, str(last - 1))
        assert len(found) == KEYS
        assert dict(found) == expected
    finally:
        process.kill()

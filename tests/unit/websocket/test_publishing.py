"""Numbers, batches and receipts of a producer; which partition; parameters."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.ids import Position
from magnetar.websocket.documents import Outgoing, all_but, message_id_of, outgoing_of
from magnetar.websocket.errors import BadQueryError, MessageError
from magnetar.websocket.memory import ByteCount
from magnetar.websocket.publishing import BATCH_BYTES_MAX, Publishing
from magnetar.websocket.query_options import consumer_options, producer_options, reader_options
from magnetar.websocket.routing import Routing, java_hash
from magnetar.wire import payload
from magnetar.wire import pulsar_pb2 as pb


def outgoing(body: bytes = b"x", **more: Any) -> Outgoing:
    fields: dict[str, Any] = {
        "context": None,
        "key": None,
        "properties": {},
        "event_ms": 0,
        "deliver_at_ms": None,
        "replicate_to": None,
        "sequence_id": None,
    }
    return Outgoing(payload=body, **{**fields, **more})


def publishing(
    batch_max: int = 1, timeout_ms: int = 0, last_id: int = -1, clock: ManualClock | None = None
) -> Publishing:
    clock = clock or ManualClock()
    made = Publishing(
        1, clock, ByteCount(), compression=pb.NONE, batch_messages_max=batch_max, timeout_ms=timeout_ms
    )
    made.opened("p", last_id, again=False)
    return made


def metadata_of(entry: bytes) -> pb.MessageMetadata:
    return payload.parse_metadata(payload.split_entry(entry).metadata)


def test_numbers_go_on_behind_those_of_before() -> None:
    made = publishing(last_id=41)
    assert made.add(outgoing())[0].sequence_ids == [42]
    assert made.add(outgoing(sequence_id=100))[0].sequence_ids == [100]
    assert made.add(outgoing())[0].sequence_ids == [101]
    assert [receipt.position for receipt in made.stored(42, Position(1, 0))] == [Position(1, 0)]
    assert [run.sequence_ids for run in made.unanswered()] == [[100], [101]]
    assert made.stored(42, Position(1, 0)) == []


def test_a_batch_has_one_key_and_delayed_messages_go_alone() -> None:
    made = publishing(batch_max=10)
    assert made.add(outgoing(key="a", context="1")) == []
    assert made.add(outgoing(key="a", context="2")) == []
    (run,) = made.add(outgoing(key="b", context="3"))
    assert (run.sequence_ids, run.counts, run.highest_sequence_ids) == ([0], [2], [1])
    batch, alone = made.add(outgoing(deliver_at_ms=5))
    assert metadata_of(batch.entries[0]).partition_key == "b"
    assert metadata_of(alone.entries[0]).deliver_at_time == 5
    receipts = made.stored(0, Position(1, 0))
    assert [(each.context, each.batch_index, each.batch_size) for each in receipts] == [
        ("1", 0, 2),
        ("2", 1, 2),
    ]


def test_a_batch_is_bounded_in_bytes() -> None:
    made = publishing(batch_max=1000)
    assert made.add(outgoing(bytes(BATCH_BYTES_MAX - 1))) == []
    assert len(made.add(outgoing(b"xx"))) == 1
    assert made.batch_waits
    assert len(made.flush()) == 1


def test_what_gets_no_receipt_is_given_up() -> None:
    clock = ManualClock()
    made = publishing(timeout_ms=100, clock=clock)
    made.add(outgoing(context="c"))
    assert made.late_in_ms == 100
    clock.step(3_600_000)
    clock.advance(99)
    assert made.late() == []
    clock.step(-7_200_000)
    clock.advance(1)
    (receipt,) = made.late()
    assert (receipt.context, receipt.position) == ("c", None)
    assert made.stored(0, Position(1, 0)) == []


def test_clusters_and_nobody_else() -> None:
    made = publishing()
    assert metadata_of(made.add(outgoing(replicate_to=("r1",)))[0].entries[0]).replicate_to == ["r1"]
    assert metadata_of(made.add(outgoing(replicate_to=()))[0].entries[0]).replicate_to == ["__local__"]


def test_routing() -> None:
    assert java_hash("hello") == 99162322
    assert java_hash("") == 0
    alone = Routing(3, murmur=False, round_robin=False, first=7)
    assert [alone.partition_of(None) for _ in range(3)] == [1, 1, 1]
    turns = Routing(3, murmur=False, round_robin=True, first=1)
    assert [turns.partition_of(None) for _ in range(4)] == [1, 2, 0, 1]
    assert turns.partition_of("hello") == 99162322 % 3
    assert 0 <= Routing(3, murmur=True, round_robin=True, first=0).partition_of("hello") < 3


def test_one_message_of_a_batch() -> None:
    assert all_but(0, 2) == (0b10,)
    assert all_but(64, 66) == ((1 << 64) - 1, 0b10)
    assert all_but(63, 64) == ((1 << 63) - 1,)


def test_numbers_that_are_too_large() -> None:
    largest = (1 << 63) - 1
    message = outgoing_of(json.dumps({"payload": "", "deliverAfterMs": largest}), 5)
    assert message.deliver_at_ms == largest
    made = publishing()
    assert made.add(message)[0].sequence_ids == [0]
    huge = pb.MessageIdData(ledgerId=1, entryId=1, batch_index=0, batch_size=(1 << 31) - 1)
    for text in ("%", "", b64encode(huge.SerializeToString()).decode()):
        with pytest.raises(MessageError):
            message_id_of(text)
    for text in ("[" * 100_000, '{"payload": "", "sequenceId": 9223372036854775808}', "[]", '{"payload": 1}'):
        with pytest.raises(MessageError):
            outgoing_of(text, 5)


def test_parameters() -> None:
    usual = consumer_options({})
    assert (usual.kind, usual.durable, usual.queue_size, usual.pull) == (
        pb.CommandSubscribe.Exclusive,
        True,
        1000,
        False,
    )
    assert usual.redeliveries_max is None
    assert consumer_options({"receiverQueueSize": "0"}).queue_size == 1
    assert consumer_options({"receiverQueueSize": "100000"}).queue_size == 1000
    assert producer_options({"batchingEnabled": "true"}).batch_messages_max == 1000
    assert producer_options({"batchingMaxMessages": "7"}).batch_messages_max == 1
    assert reader_options({"messageId": "CAEQAiADKAE="}).start == Position(1, 2)
    for query in ({"priorityLevel": "x"}, {"receiverQueueSize": "-1"}, {"subscriptionMode": "X"}):
        with pytest.raises(BadQueryError):
            consumer_options(query)


@pytest.mark.parametrize("parts", ['"a":"b",' * 2_600, '"a":[' + "[" * 10_000, '"a":' + "{" * 10_000])
def test_a_text_of_very_many_parts_is_refused_unread(parts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda _: pytest.fail("it was read"))
    with pytest.raises(MessageError, match="too many parts"):
        outgoing_of('{"payload":"","properties":{' + parts, 0)

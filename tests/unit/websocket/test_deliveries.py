"""Entries to messages: pieces, encryption, compression, and what claims too much."""

from __future__ import annotations

import zlib
from base64 import b64decode
from typing import Any

import pytest

from magnetar.base.ids import Position
from magnetar.websocket import deliveries
from magnetar.websocket.deliveries import LARGE_BYTES_MAX, Opened, Opener
from magnetar.websocket.errors import UndeliverableError
from magnetar.websocket.memory import ByteCount
from magnetar.wire import payload
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.messages import MessageEvent, event_of_entry


def event(body: bytes, entry_id: int = 0, **more: object) -> MessageEvent:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.MergeFrom(pb.MessageMetadata(**more))  # type: ignore[arg-type]
    return event_of_entry(1, Position(7, entry_id), payload.build_entry(metadata, body))


def opener(crypto_failure: str = "FAIL") -> Opener:
    return Opener(crypto_failure, 5 << 20)


def test_pieces_become_one_message() -> None:
    opening = opener()
    size = {"uuid": "u", "num_chunks_from_msg": 3, "total_chunk_msg_size": 6}
    for number in (0, 1):
        assert opening.open(event(b"%d%d" % (number, number), number, chunk_id=number, **size)).messages == []
    (whole,) = opening.open(event(b"22", 2, chunk_id=2, **size)).messages
    assert whole.payload == b"001122"
    assert whole.position == Position(7, 2)
    assert whole.pieces == (Position(7, 0), Position(7, 1))


def test_pieces_that_a_producer_sends_again_are_no_gap() -> None:
    """It had no receipt for them when its broker was killed. The first one may be that of another message of
    the same name, so it begins anew."""
    opening = opener()
    size = {"uuid": "u", "num_chunks_from_msg": 3, "total_chunk_msg_size": 6}
    for entry_id, number in ((0, 0), (1, 0), (2, 1)):
        assert opening.open(event(b"%d%d" % (entry_id, number), entry_id, chunk_id=number, **size)) == (
            Opened(1, [])
        )
    # In the middle: the one that is there counts, and this one is settled.
    again = opening.open(event(b"31", 3, chunk_id=1, **size))
    assert (again.messages, again.discarded) == ([], True)
    # An entry that the broker gives again is neither a gap nor settled.
    assert opening.open(event(b"21", 2, chunk_id=1, **size)) == Opened(1, [])
    (whole,) = opening.open(event(b"42", 4, chunk_id=2, **size)).messages
    assert whole.payload == b"102142"
    assert whole.pieces == (Position(7, 0), Position(7, 1), Position(7, 2))


def test_beginnings_without_end_are_not_remembered_without_end() -> None:
    held = ByteCount()
    opening = Opener("FAIL", 5 << 20, held)
    size = {"uuid": "u", "num_chunks_from_msg": 2, "total_chunk_msg_size": 4}
    for entry_id in range(2_000):
        opening.open(event(b"ab", entry_id, chunk_id=0, **size))
    (whole,) = opening.open(event(b"cd", 2_000, chunk_id=1, **size)).messages
    assert whole.payload == b"abcd"
    assert len(whole.pieces) < 1_000
    assert held.size_bytes == 0


def test_a_piece_without_its_beginning_is_let_go() -> None:
    size = {"uuid": "u", "num_chunks_from_msg": 2, "total_chunk_msg_size": 4}
    opened = opener().open(event(b"x", chunk_id=1, **size))
    assert (opened.messages, opened.discarded) == ([], True)


def test_compressed_messages_take_what_they_say_at_most() -> None:
    packed = zlib.compress(bytes(1000))
    (message,) = opener().open(event(packed, compression=pb.ZLIB, uncompressed_size=1000)).messages
    assert message.payload == bytes(1000)
    bomb = zlib.compress(bytes(10_000_000))
    for claim, body in ((10, bomb), (LARGE_BYTES_MAX + 1, packed), (10, b"nonsense")):
        with pytest.raises(UndeliverableError):
            opener().open(event(body, compression=pb.ZLIB, uncompressed_size=claim))


def test_what_unpacks_to_more_than_its_bound_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "LARGE_BYTES_MAX", 999)
    honest = event(zlib.compress(bytes(1_000)), compression=pb.ZLIB, uncompressed_size=1_000)
    with pytest.raises(UndeliverableError, match="claims to have 1000 bytes"):
        Opener("FAIL", 10).open(honest)
    assert Opener("FAIL", 1_000).open(honest).messages


def test_encrypted_messages() -> None:
    keys = [pb.EncryptionKeys(key="k", value=b"secret", metadata=[pb.KeyValue(key="a", value="b")])]
    sealed = event(b"sealed", encryption_keys=keys, encryption_algo="x", encryption_param=b"iv")
    with pytest.raises(UndeliverableError, match="cryptoFailureAction"):
        opener().open(sealed)
    assert opener("DISCARD").open(sealed).discarded
    (message,) = opener("CONSUME").open(sealed).messages
    assert message.payload == b"sealed"
    context = message.encryption
    assert context is not None
    shown: Any = context["keys"]
    assert b64decode(shown["k"]["keyValue"]) == b"secret"
    assert shown["k"]["metadata"] == {"a": "b"}
    assert b64decode(context["param"]) == b"iv"


def test_a_damaged_entry_is_not_delivered() -> None:
    damaged = event(b"x")
    damaged.intact = False
    with pytest.raises(UndeliverableError, match="checksum"):
        opener().open(damaged)


def test_a_batch_gives_what_is_left_of_it() -> None:
    singles = [(pb.SingleMessageMetadata(partition_key=f"k{number}"), b"%d" % number) for number in range(3)]
    batch = event(payload.build_batch(singles), num_messages_in_batch=3)
    batch.ack_set = (0b101,)
    opened = opener().open(batch)
    assert opened.permits == 2
    assert [(each.batch_index, each.key, each.payload) for each in opened.messages] == [
        (0, "k0", b"0"),
        (2, "k2", b"2"),
    ]

"""What producers say of themselves is checked where it comes in, and survived where it was stored before."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.ids import Position
from magnetar.broker.service import BrokerConfig
from magnetar.broker.topic import topic_claims as claims
from magnetar.client.compression import compress
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry
from magnetar.wire.sends import encode_send
from magnetar.wire.server import SendRun, ServerParser
from support.sessions import FRAME_BYTES_MAX, Type, World, entry, in_world, send

TOP = (1 << 63) - 1


def metadata(sequence_id: int = 0, **more: Any) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1, **more)


def batch(count: int, sequence_id: int = 0, **more: Any) -> bytes:
    """A batch of `count` messages that may say something else of itself."""
    plain = build_batch((pb.SingleMessageMetadata(), b"m%d" % i) for i in range(count))
    fields = {"num_messages_in_batch": count, "uncompressed_size": len(plain), **more}
    payload = compress(fields.get("compression", pb.NONE), plain)
    return build_entry(metadata(sequence_id, **fields), payload)


def parsed(*frames: bytes) -> SendRun:
    data = b"".join(frames)
    (run,), consumed = ServerParser(FRAME_BYTES_MAX).parse(data, len(data))
    assert consumed == len(data)
    assert isinstance(run, SendRun)
    return run


def test_true_batches_and_pieces_pass() -> None:
    for kind in (pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY):
        run = parsed(encode_send(1, 5, 100, batch(100, 5, compression=kind), 104))
        assert claims.refusals(run) == {}
    assert not claims.doubtful(parsed(encode_send(1, 5, 100, batch(100, 5))))
    piece = metadata(chunk_id=1, num_chunks_from_msg=2, total_chunk_msg_size=10, uuid="u")
    assert claims.refusals(parsed(encode_send(1, 0, 1, build_entry(piece, b"x" * 5), is_chunk=True))) == {}


@pytest.mark.parametrize(
    "frame",
    [
        encode_send(1, 0, 3, batch(3, num_messages_in_batch=4)),
        encode_send(1, 0, 3, batch(3, num_messages_in_batch=-1)),
        encode_send(1, 0, 3, entry(b"x" * 100)),
        encode_send(1, 0, 1000, batch(3, num_messages_in_batch=1000)),
        encode_send(1, 0, 1000, batch(3, num_messages_in_batch=1000, compression=pb.LZ4)),
        encode_send(1, 0, (1 << 31) - 1, batch(3, num_messages_in_batch=(1 << 31) - 1)),
        *(
            encode_send(1, 0, 1, build_entry(metadata(uuid="u", **lie), b"x" * 5), is_chunk=True)
            for lie in (
                {"chunk_id": 2, "num_chunks_from_msg": 2, "total_chunk_msg_size": 10},
                {"chunk_id": -1, "num_chunks_from_msg": 2, "total_chunk_msg_size": 10},
                {"chunk_id": 0, "num_chunks_from_msg": -5, "total_chunk_msg_size": 10},
                {"chunk_id": 0, "num_chunks_from_msg": 2, "total_chunk_msg_size": -1},
                {"chunk_id": 0, "num_chunks_from_msg": 2, "total_chunk_msg_size": 4},
            )
        ),
        encode_send(1, 1 << 63, 1, entry(b"x")),
        encode_send(1, (1 << 64) - 1, 1, entry(b"x")),
        encode_send(1, 5, 3, batch(3), 1 << 63),
        encode_send(1, TOP, 2, batch(2)),
    ],
)
def test_a_frame_that_contradicts_itself_is_refused_and_the_next_one_is_not(frame: bytes) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer(producer_name="p")
        topic = await world.topic()
        peer.send(frame, send(1, 7))
        await world.until(lambda: peer.receipts, "a receipt")
        (error,) = peer.commands(Type.SEND_ERROR)
        assert error.error == pb.NotAllowedError
        assert [sequence_id for _, sequence_id, _ in peer.receipts] == [7]
        assert topic.log.entry_count == 1
        assert topic.messages_in == 1

    in_world(story)


def test_the_highest_numbers_in_range_are_taken() -> None:
    run = parsed(send(1, TOP), encode_send(1, TOP - 2, 3, batch(3), TOP))
    assert run.out_of_range is None


def test_frames_of_one_shape_do_not_pass_the_end_of_the_range() -> None:
    """The parser learns a shape from a frame whose last number is in range; the next one's is not."""
    frames = [encode_send(1, TOP - 10 + i, 8, batch(8)) for i in range(8)]
    assert parsed(*frames).out_of_range == [4, 5, 6, 7]


def test_a_number_out_of_range_is_refused_and_the_state_of_all_others_is_stored() -> None:
    async def story(world: World) -> None:
        bad, good = world.peer(), world.peer()
        await bad.producer(1, producer_name="bad")
        await good.producer(1, producer_name="good")
        topic = await world.topic()
        bad.send(send(1, 1 << 63))
        good.send(send(1, 41))
        await world.until(lambda: good.receipts, "a receipt")
        (error,) = bad.commands(Type.SEND_ERROR)
        assert "2^63" in error.message
        assert topic.dedup is not None
        await topic.dedup.snapshot()
        assert topic.dedup.state.snapshot() == {"good": 41}

    in_world(story, BrokerConfig(deduplication=True))


def test_a_log_that_holds_impossible_numbers_and_damage_opens_and_stores_its_state() -> None:
    """Written by an earlier version: the replay passes over what no snapshot can hold."""

    async def story(world: World) -> None:
        topic = await world.topic()
        topic.log.append(
            [
                build_entry(metadata(1 << 63), b"x"),
                build_entry(metadata(3, highest_sequence_id=(1 << 64) - 1), b"x"),
                build_entry(metadata(4, num_messages_in_batch=1 << 30), b"x"),
                b"\x00\x00\x00\x02\xff\xff no metadata",
                build_entry(metadata(6), b"x"),
            ],
            None,
        )
        await world.settle()
        await world.broker.policies.update_topic(
            topic.name, lambda document: document.update(deduplicationEnabled=True)
        )
        await world.broker.unload(topic.name)
        topic = await world.topic()
        assert topic.dedup is not None
        # The cursor of a topic that had none begins at the end: replayed from the start here.
        topic.dedup._complete = Position(-1, -1)
        await topic.dedup._replay()
        assert topic.dedup.state.snapshot() == {"p": 6}
        await topic.dedup.snapshot()
        assert topic.log.cursors["pulsar.dedup"].properties == {"p": 6}

    in_world(story)


def test_the_last_message_of_a_topic_may_be_damaged() -> None:
    async def story(world: World) -> None:
        topic = await world.topic()
        position = topic.log.append([build_entry(metadata(num_messages_in_batch=-7), b"x")], None)
        await world.settle()
        assert await topic.last_message() == (position, 0)
        position = topic.log.append([b"\x00\x00\x00\x02\xff\xff"], None)
        await world.settle()
        assert await topic.last_message() == (position, -1)

    in_world(story)

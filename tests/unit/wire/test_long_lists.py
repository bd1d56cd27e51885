"""Commands that name very many message ids are decoded in parts."""

from __future__ import annotations

import pytest

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import LongList
from magnetar.wire.frames import FrameError, encode_command
from magnetar.wire.long_lists import IDS_MAX, parts
from magnetar.wire.server import ServerParser

_FRAME_MAX = 5 << 20
_COUNT = 20_000


def _ack(count: int = _COUNT, **more: int) -> pb.CommandAck:
    ack = pb.CommandAck(consumer_id=7, ack_type=pb.CommandAck.Individual, **more)
    for number in range(count):
        ack.message_id.add(ledgerId=number % 3, entryId=number)
    return ack


def _of(ack: pb.CommandAck) -> LongList:
    return LongList(pb.BaseCommand.ACK, ack.SerializeToString())


def test_the_parser_leaves_long_lists_for_later_and_decodes_short_ones() -> None:
    redelivery = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=7, message_ids=_ack().message_id)
    kind = pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES
    data = encode_command(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=_ack()))
    data += encode_command(pb.BaseCommand(type=kind, redeliverUnacknowledgedMessages=redelivery))
    data += encode_command(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=_ack(100)))
    events, consumed = ServerParser(_FRAME_MAX).parse(data, len(data))
    assert consumed == len(data)
    assert [type(event).__name__ for event in events] == ["LongList", "LongList", "AckEvent"]
    assert [event.type for event in events if isinstance(event, LongList)] == [pb.BaseCommand.ACK, kind]


def test_a_list_with_something_beside_it_is_no_legal_frame() -> None:
    command = pb.BaseCommand(type=pb.BaseCommand.ACK, ack=_ack(), ping=pb.CommandPing())
    data = encode_command(command)
    with pytest.raises(FrameError, match="more than its own field"):
        ServerParser(_FRAME_MAX).parse(data, len(data))


def test_short_lists_count_by_their_ids() -> None:
    """Sixteen lists of 2,000 ids in a read are more than a turn's work."""
    data = encode_command(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=_ack(1_280)))
    parser = ServerParser(_FRAME_MAX)
    parser.parse(data, len(data))
    assert parser.commands == 1 + 1_280 // 64


def test_the_ids_come_in_order_in_parts_with_all_else_in_each() -> None:
    ack = _ack(validation_error=2, txnid_most_bits=3, txnid_least_bits=4, request_id=9)
    found = list(parts(_of(ack)))
    assert found[0] is None
    made = [part for part in found if isinstance(part, pb.CommandAck)]
    assert max(len(part.message_id) for part in made) <= IDS_MAX
    assert [each for part in made for each in part.message_id] == list(ack.message_id)
    for part in made:
        del part.message_id[:]
        assert part == pb.CommandAck(
            consumer_id=7,
            ack_type=pb.CommandAck.Individual,
            validation_error=2,
            txnid_most_bits=3,
            txnid_least_bits=4,
            request_id=9,
        )


def test_the_rest_may_stand_anywhere() -> None:
    """Each id alone between two other fields: few parts all the same."""
    ids = [b"\x1a\x04\x08\x01\x10" + bytes((number % 100,)) for number in range(2_000)]
    body = b"".join(each + b"\x10\x00" for each in ids) + b"\x08\x07"
    made = [part for part in parts(LongList(pb.BaseCommand.ACK, body)) if isinstance(part, pb.CommandAck)]
    assert [len(part.message_id) for part in made] == [1_024, 976]
    assert {part.consumer_id for part in made} == {7}


def test_a_list_without_ids_is_one_part() -> None:
    assert list(parts(_of(_ack(0)))) == [_ack(0)]


def test_long_sets_make_small_parts() -> None:
    ack = _ack(0)
    for number in range(64):
        ack.message_id.add(ledgerId=1, entryId=number, ack_set=[-1] * 400)
    made = [part for part in parts(_of(ack)) if isinstance(part, pb.CommandAck)]
    assert sum(len(part.message_id) for part in made) == 64
    assert max(len(part.message_id) for part in made) <= 8


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(_ack().SerializeToString()[:-1], id="cut"),
        pytest.param(b"\x1a", id="a tag alone"),
        pytest.param(b"\x08\x07\x10\x00\x1a\xff\xff\xff\xff\x7f", id="an id longer than the list"),
        pytest.param(b"\x1a\x04\x08\x01\x10\x01" * 3_000, id="no consumer"),
        pytest.param(b"\x08\x07\x10\x00" + b"\x20\x01" * 5_000, id="many other fields"),
        pytest.param(b"\x08\x07\x10\x00\x2a\xa0\x9c\x01" + b"x" * 20_000, id="a long other field"),
        pytest.param(b"\x08\x07\x10\x00\x1b" + b"\x1c" * 10, id="groups"),
        pytest.param(b"\x08\x07\x10\x00" + b"\x1a\x02\xff\xff" * 10, id="ids that are none"),
    ],
)
def test_what_is_no_list_is_no_legal_frame(body: bytes) -> None:
    with pytest.raises(FrameError):
        list(parts(LongList(pb.BaseCommand.ACK, body)))

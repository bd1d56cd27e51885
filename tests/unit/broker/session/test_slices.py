"""Lists of message ids in slices, which take a turn of the loop each."""

from __future__ import annotations

from magnetar.base.ids import Position
from magnetar.broker.session.slices import (
    ACKS_MAX,
    BATCH_ACKS_MAX,
    REDELIVERED_MAX,
    TXN_ACKS_MAX,
    WORDS_MAX,
    sliced,
)
from magnetar.broker.transactions.subscription_acks import ACKS_MAX as TRANSACTION_ACKS_MAX
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import AckEvent, CommandEvent, FlowEvent, LongList
from magnetar.wire.long_lists import IDS_MAX


def _positions(count: int) -> list[Position]:
    return [Position(1, number) for number in range(count)]


def _redelivery(count: int) -> CommandEvent:
    body = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=7, consumer_epoch=3)
    for entry_id in range(count):
        body.message_ids.add(ledgerId=1, entryId=entry_id)
    kind = pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES
    return CommandEvent(kind, pb.BaseCommand(type=kind, redeliverUnacknowledgedMessages=body))


def test_short_events_take_one_turn() -> None:
    events = [FlowEvent(1, 5), AckEvent(1, _positions(ACKS_MAX)), _redelivery(REDELIVERED_MAX)]
    assert list(sliced(events)) == [events]
    assert list(sliced([])) == []


def test_acknowledgements_come_in_turns_the_receipt_with_the_last_and_what_follows_behind() -> None:
    flow, ping = FlowEvent(1, 5), FlowEvent(2, 6)
    ack = AckEvent(1, _positions(3 * ACKS_MAX - 1), request_id=9, validation_error=2)
    turns = list(sliced([flow, ack, ping]))
    assert turns[0][0] is flow
    assert turns[-1] == [ping]
    acks = [event for turn in turns for event in turn if isinstance(event, AckEvent)]
    assert [len(each.positions) for each in acks] == [ACKS_MAX, ACKS_MAX, ACKS_MAX - 1]
    assert [position for each in acks for position in each.positions] == ack.positions
    assert [each.request_id for each in acks] == [None, None, 9]
    assert {each.validation_error for each in acks} == {2}
    assert all(sum(isinstance(event, AckEvent) for event in turn) <= 1 for turn in turns)


def test_sets_of_batches_are_cut_by_number_and_by_length() -> None:
    many = [(Position(1, number), (1,), 2) for number in range(2 * BATCH_ACKS_MAX + 1)]
    acks = [event for turn in sliced([AckEvent(1, [], batch_acks=many)]) for event in turn]
    assert [len(each.batch_acks or []) for each in acks if isinstance(each, AckEvent)] == [
        BATCH_ACKS_MAX,
        BATCH_ACKS_MAX,
        1,
    ]
    long = [(Position(1, number), (1,) * WORDS_MAX, 2) for number in range(3)]
    acks = [event for turn in sliced([AckEvent(1, _positions(1), batch_acks=long)]) for event in turn]
    assert [
        (len(each.positions), len(each.batch_acks or [])) for each in acks if isinstance(each, AckEvent)
    ] == [
        (1, 0),
        (0, 1),
        (0, 1),
        (0, 1),
    ]


def test_redeliveries_come_in_turns() -> None:
    whole = _redelivery(2 * REDELIVERED_MAX + 1)
    turns = list(sliced([whole]))
    bodies = [
        event.command.redeliverUnacknowledgedMessages
        for turn in turns
        for event in turn
        if isinstance(event, CommandEvent)
    ]
    assert [len(body.message_ids) for body in bodies] == [REDELIVERED_MAX, REDELIVERED_MAX, 1]
    assert all(body.consumer_id == 7 and body.consumer_epoch == 3 for body in bodies)
    ids = [message_id.entryId for body in bodies for message_id in body.message_ids]
    assert ids == list(range(2 * REDELIVERED_MAX + 1))


def _long(count: int, **more: int) -> LongList:
    body = pb.CommandAck(consumer_id=7, ack_type=pb.CommandAck.Individual, **more)
    for entry_id in range(count):
        body.message_id.add(ledgerId=1, entryId=entry_id)
    return LongList(pb.BaseCommand.ACK, body.SerializeToString())


def test_a_long_acknowledgement_is_decoded_in_the_turns_that_handle_it() -> None:
    flow, ping = FlowEvent(1, 5), FlowEvent(2, 6)
    turns = list(sliced([flow, _long(5 * IDS_MAX, request_id=9), ping]))
    assert (turns[0], turns[-1]) == ([flow], [ping])
    acks = [event for turn in turns for event in turn if isinstance(event, AckEvent)]
    assert [len(each.positions) for each in acks] == [IDS_MAX] * 5
    assert [position for each in acks for position in each.positions] == _positions(5 * IDS_MAX)
    assert [each.request_id for each in acks] == [None] * 4 + [9]


def test_an_acknowledgement_in_a_transaction_is_one_and_is_decoded_in_turns() -> None:
    turns = list(sliced([_long(5 * IDS_MAX, request_id=9, txnid_least_bits=1, txnid_most_bits=2)]))
    assert len(turns) >= 6
    (ack,) = [event for turn in turns for event in turn]
    assert isinstance(ack, AckEvent)
    assert (ack.positions, ack.request_id, ack.txn) == (_positions(5 * IDS_MAX), 9, (2, 1))


def test_of_more_than_a_transaction_takes_no_more_is_decoded_than_it_refuses() -> None:
    turns = list(sliced([_long(100_000, txnid_least_bits=1, txnid_most_bits=2)]))
    (ack,) = [event for turn in turns for event in turn]
    assert isinstance(ack, AckEvent)
    assert TXN_ACKS_MAX == TRANSACTION_ACKS_MAX + 1
    assert TRANSACTION_ACKS_MAX < len(ack.positions) <= TRANSACTION_ACKS_MAX + IDS_MAX


def test_a_long_redelivery_is_decoded_in_turns() -> None:
    whole = _redelivery(5 * IDS_MAX).command.redeliverUnacknowledgedMessages
    kind = pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES
    turns = list(sliced([LongList(kind, whole.SerializeToString())]))
    bodies = [
        event.command.redeliverUnacknowledgedMessages
        for turn in turns
        for event in turn
        if isinstance(event, CommandEvent)
    ]
    assert [len(body.message_ids) for body in bodies] == [IDS_MAX] * 5
    assert all(body.consumer_id == 7 and body.consumer_epoch == 3 for body in bodies)

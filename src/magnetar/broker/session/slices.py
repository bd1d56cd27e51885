"""Lists of message ids in slices: one command may name a hundred thousand (pure).

To decode and acknowledge one costs two microseconds, to send one again three, and all that a command names
would be one piece of work. So it becomes several events, for one turn of the loop each, and long commands are
decoded in the turns that handle them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import ack_of_command
from magnetar.wire.events import AckEvent, CommandEvent, LongList
from magnetar.wire.long_lists import parts

ACKS_MAX: Final = 8_192
"""Positions of one event; the parser gathers half as many from small commands."""
REDELIVERED_MAX: Final = 2_048
BATCH_ACKS_MAX: Final = 1_024
WORDS_MAX: Final = 4_096
"""Words in all bit sets of messages in batches."""
TXN_ACKS_MAX: Final = 20_001
"""Ids of an acknowledgement in a transaction that are decoded: one more than a transaction takes, so that it
refuses them."""
_REDELIVER: Final = pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES


def sliced(events: Sequence[object]) -> Iterator[list[object]]:
    """The same events in the same order, in lists that take a turn each; mostly there is one. Empty ones take
    a turn too: something was decoded. Raises FrameError."""
    turn: list[object] = []
    for event in events:
        if isinstance(event, LongList):
            if turn:
                yield turn
                turn = []
            yield from _decoded(event)
            continue
        slices = _slices(event)
        if slices is None:
            turn.append(event)
            continue
        for each in slices:
            yield [*turn, each]
            turn = []
    if turn:
        yield turn


def _decoded(event: LongList) -> Iterator[list[object]]:
    """What a long command says, in turns."""
    together: AckEvent | None = None
    last: AckEvent | None = None
    for part in parts(event):
        if part is None:
            yield []
        elif isinstance(part, pb.CommandRedeliverUnacknowledgedMessages):
            yield [
                CommandEvent(
                    event.type, pb.BaseCommand(type=_REDELIVER, redeliverUnacknowledgedMessages=part)
                )
            ]
        elif together is not None:
            # All or none: they are one event, however many there are.
            if _ids(together) < TXN_ACKS_MAX:
                _add(together, ack_of_command(part))
            yield []
        else:
            ack = ack_of_command(part)
            if ack.txn is not None:
                together = ack
                yield []
                continue
            if last is not None:
                # The receipt is that of the last part.
                last.request_id = None
                yield from sliced([last])
            last = ack
    if together is not None:
        yield [together]
    elif last is not None:
        yield from sliced([last])


def _ids(ack: AckEvent) -> int:
    return len(ack.positions) + len(ack.batch_acks or ())


def _add(ack: AckEvent, more: AckEvent) -> None:
    ack.positions += more.positions
    if more.batch_acks:
        ack.batch_acks = (ack.batch_acks or []) + more.batch_acks


def _slices(event: object) -> Iterator[object] | None:
    """None: it is short."""
    if isinstance(event, AckEvent):
        # A cumulative ack names one position; the acks of a transaction succeed or fail together.
        if event.cumulative or event.txn is not None:
            return None
        batches = event.batch_acks or []
        if len(event.positions) > ACKS_MAX or len(batches) > BATCH_ACKS_MAX or _words(batches) > WORDS_MAX:
            return _acks(event)
    elif (
        isinstance(event, CommandEvent)
        and event.type == _REDELIVER
        and len(event.command.redeliverUnacknowledgedMessages.message_ids) > REDELIVERED_MAX
    ):
        return _redeliveries(event)
    return None


def _words(batches: Sequence[tuple[object, tuple[int, ...], int]]) -> int:
    return sum(len(words) for _, words, _ in batches)


def _acks(event: AckEvent) -> Iterator[AckEvent]:
    """The last of them asks for the receipt, if one does."""
    made = [
        AckEvent(
            event.consumer_id,
            event.positions[at : at + ACKS_MAX],
            validation_error=event.validation_error,
        )
        for at in range(0, len(event.positions), ACKS_MAX)
    ]
    batches = list(event.batch_acks or [])
    while batches:
        count = words = 0
        while count < min(len(batches), BATCH_ACKS_MAX) and (not count or words < WORDS_MAX):
            words += len(batches[count][1])
            count += 1
        made.append(AckEvent(event.consumer_id, [], batch_acks=batches[:count]))
        del batches[:count]
    made[-1].request_id = event.request_id
    return iter(made)


def _redeliveries(event: CommandEvent) -> Iterator[CommandEvent]:
    body = event.command.redeliverUnacknowledgedMessages
    ids = body.message_ids
    for at in range(0, len(ids), REDELIVERED_MAX):
        part = pb.CommandRedeliverUnacknowledgedMessages(
            consumer_id=body.consumer_id, message_ids=ids[at : at + REDELIVERED_MAX]
        )
        if body.HasField("consumer_epoch"):
            part.consumer_epoch = body.consumer_epoch
        command = pb.BaseCommand(type=_REDELIVER, redeliverUnacknowledgedMessages=part)
        yield CommandEvent(event.type, command)

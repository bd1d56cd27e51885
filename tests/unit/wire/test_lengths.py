"""How long a command can be: what is longer is refused before it has come, and what is allowed is taken."""

from __future__ import annotations

import struct
from functools import cache
from typing import Final

import pytest

from magnetar.base.ids import Position
from magnetar.base.names import TOPIC_CHARS_MAX
from magnetar.broker.handlers.texts import (
    NAME_CHARS_MAX,
    PROPERTIES_CHARS_MAX,
    PROPERTIES_MAX,
    SCHEMA_BYTES_MAX,
)
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import encode_ack
from magnetar.wire.commands import PING, message_id_data
from magnetar.wire.events import CommandEvent, LongList, ServerEvent
from magnetar.wire.frames import FrameError, encode_command
from magnetar.wire.lengths import COMMAND_BYTES_MAX, ENVELOPE_BYTES
from magnetar.wire.long_lists import parts
from magnetar.wire.server import ServerParser

FRAME_MAX: Final = 6 << 20
WIDE: Final = "\U0001f30c"
"""A character of four bytes."""


def lookup(size: int) -> pb.BaseCommand:
    return pb.BaseCommand(
        type=pb.BaseCommand.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic="n" * size, request_id=1)
    )


def parse(data: bytes) -> list[ServerEvent]:
    events, consumed = ServerParser(FRAME_MAX).parse(data, len(data))
    assert consumed == len(data)
    return events


def properties(chars: int) -> list[pb.KeyValue]:
    each = chars // PROPERTIES_MAX
    return [pb.KeyValue(key="", value=WIDE * each) for _ in range(PROPERTIES_MAX)]


@cache
def longest() -> list[pb.BaseCommand]:
    """Commands in which every text is as long as it may be."""
    name, topic = WIDE * NAME_CHARS_MAX, WIDE * TOPIC_CHARS_MAX
    own, many = properties(PROPERTIES_CHARS_MAX), properties(4 * PROPERTIES_CHARS_MAX)
    schema = pb.Schema(name=name, type=pb.Schema.Json, schema_data=bytes(SCHEMA_BYTES_MAX), properties=many)
    types = pb.BaseCommand
    return [
        pb.BaseCommand(
            type=types.LOOKUP,
            lookupTopic=pb.CommandLookupTopic(
                topic=topic,
                request_id=1,
                original_principal=name,
                original_auth_data=name,
                original_auth_method=name,
                advertised_listener_name=name,
                properties=many,
            ),
        ),
        pb.BaseCommand(
            type=types.GET_TOPICS_OF_NAMESPACE,
            getTopicsOfNamespace=pb.CommandGetTopicsOfNamespace(
                request_id=1,
                namespace=name,
                topics_pattern=WIDE * (16 << 10),
                topics_hash=name,
                properties=many,
            ),
        ),
        pb.BaseCommand(
            type=types.WATCH_TOPIC_LIST,
            watchTopicList=pb.CommandWatchTopicList(
                request_id=1, watcher_id=1, namespace=name, topics_pattern=WIDE * (16 << 10), topics_hash=name
            ),
        ),
        pb.BaseCommand(
            type=types.PRODUCER,
            producer=pb.CommandProducer(
                topic=topic,
                producer_id=1,
                request_id=1,
                producer_name=name,
                initial_subscription_name=name,
                metadata=own,
                schema=schema,
            ),
        ),
        pb.BaseCommand(
            type=types.SUBSCRIBE,
            subscribe=pb.CommandSubscribe(
                topic=topic,
                subscription=name,
                subType=pb.CommandSubscribe.Shared,
                consumer_id=1,
                request_id=1,
                consumer_name=name,
                metadata=own,
                subscription_properties=own,
                schema=schema,
            ),
        ),
        pb.BaseCommand(
            type=types.GET_OR_CREATE_SCHEMA,
            getOrCreateSchema=pb.CommandGetOrCreateSchema(request_id=1, topic=topic, schema=schema),
        ),
        pb.BaseCommand(
            type=types.REDELIVER_UNACKNOWLEDGED_MESSAGES,
            redeliverUnacknowledgedMessages=pb.CommandRedeliverUnacknowledgedMessages(
                consumer_id=1, message_ids=[message_id_data(Position(1 << 40, n)) for n in range(100_000)]
            ),
        ),
    ]


LONGEST = (
    *("LOOKUP", "GET_TOPICS_OF_NAMESPACE", "WATCH_TOPIC_LIST", "PRODUCER", "SUBSCRIBE"),
    *("GET_OR_CREATE_SCHEMA", "REDELIVER_UNACKNOWLEDGED_MESSAGES"),
)
"""Their names: a collection of tests need not make the commands."""


def test_each_of_the_longest_has_its_test() -> None:
    assert tuple(pb.BaseCommand.Type.Name(command.type) for command in longest()) == LONGEST


@pytest.mark.parametrize("name", LONGEST)
def test_what_the_rules_of_texts_allow_is_taken(name: str) -> None:
    command = longest()[LONGEST.index(name)]
    (event,) = parse(encode_command(command))
    if isinstance(event, LongList):
        found = [part for part in parts(event) if isinstance(part, pb.CommandRedeliverUnacknowledgedMessages)]
        ids = [each for part in found for each in part.message_ids]
        assert ids == list(command.redeliverUnacknowledgedMessages.message_ids)
        return
    assert isinstance(event, CommandEvent)
    assert event.command == command


def test_acknowledgements_have_no_limit_but_that_of_frames() -> None:
    (event,) = parse(encode_ack(1, [Position(1 << 40, n) for n in range(100_000)]))
    assert isinstance(event, LongList)
    found = [part for part in parts(event) if isinstance(part, pb.CommandAck)]
    assert sum(len(part.message_id) for part in found) == 100_000


def test_a_long_command_is_refused_by_its_first_bytes() -> None:
    frame = encode_command(lookup(1_000_000))
    begun = PING + frame[: 4 + ENVELOPE_BYTES]
    with pytest.raises(FrameError, match="command 23 of 10000") as caught:
        ServerParser(FRAME_MAX).parse(begun, len(begun))
    (event,) = caught.value.events
    assert isinstance(event, CommandEvent)
    with pytest.raises(FrameError, match="command 23 of 10000"):
        parse(frame)


def test_fewer_bytes_than_the_rule_needs_are_waited_for() -> None:
    frame = encode_command(lookup(1_000_000))
    parser = ServerParser(FRAME_MAX)
    for size in (4, 8, 9, 3 + ENVELOPE_BYTES):
        assert parser.parse(frame[:size], size) == ([], 0)


def test_a_command_of_a_name_that_is_only_too_long_is_answered_by_the_broker() -> None:
    (event,) = parse(encode_command(lookup(COMMAND_BYTES_MAX - 100)))
    assert isinstance(event, CommandEvent)


@pytest.mark.parametrize(
    "lie",
    [
        b"\x08\x0a",  # an ACK first, then the type of what follows
        b"\x08\x0a\x52\x00",
        b"\x78\x00",  # an unknown field first
        b"\x08\x8a\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    ],
)
def test_a_long_command_must_be_its_own_field_alone(lie: bytes) -> None:
    command = lie + lookup(1_000_000).SerializeToString()
    with pytest.raises(FrameError, match="command"):
        parse(struct.pack(">II", len(command) + 4, len(command)) + command)

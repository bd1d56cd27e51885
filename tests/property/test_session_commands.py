"""Random but legal commands: every request is answered, nothing raises, and a lost connection leaves nothing.

A failing seed is to be added to SEEDS.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import encode_command
from support.sessions import FIELD_OF_TYPE, TOPIC, Type, World, in_world, send

SEEDS = range(40)
COMMANDS_PER_STORY = 60
KINDS = [kind for kind in Type.values() if kind not in (Type.CONNECT, Type.SEND, Type.AUTH_RESPONSE)]
"""Neither a second CONNECT nor an answer to a challenge that never was: they end the connection."""

_TEXTS = (
    *("", "s", "t", "\0", "[", "x" * 3_000, "pulsar.dedup", "../../x", TOPIC, "public/default", "a/b/c/d/e"),
    *(f"non-{TOPIC}", f"{TOPIC}-partition-3", f"{TOPIC}-partition--3", "persistent://a/b/c"),
    *("persistent://public/default/", "persistent://public/default/../x", f"{TOPIC}/" + "é" * 300),
)
_BITS = {
    FieldDescriptor.CPPTYPE_UINT64: (0, 64),
    FieldDescriptor.CPPTYPE_UINT32: (0, 32),
    FieldDescriptor.CPPTYPE_INT64: (1, 63),
    FieldDescriptor.CPPTYPE_INT32: (1, 31),
}


def some_value(field: Any, chance: random.Random) -> Any:
    if field.enum_type is not None:
        return chance.choice(field.enum_type.values).number
    if field.type == FieldDescriptor.TYPE_STRING:
        return chance.choice(_TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return chance.randbytes(chance.choice((0, 1, 8, 100)))
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return chance.random() < 0.5
    if field.cpp_type not in _BITS:
        return chance.random()
    is_signed, bits = _BITS[field.cpp_type]
    highest = (1 << bits) - 1
    lowest = -highest - 1 if is_signed else 0
    return chance.choice((0, 1, 1, 1, 2, 3, highest, lowest, chance.randint(lowest, highest)))


def fill(message: Message, chance: random.Random, depth: int = 0) -> None:
    """Sets required fields, and about half of the others, to values that a hostile client may choose."""
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and (depth > 4 or chance.random() < 0.5):
            continue
        if field.is_repeated:
            items = getattr(message, field.name)
            for _ in range(chance.choice((0, 1, 3))):
                if field.message_type is not None:
                    fill(items.add(), chance, depth + 1)
                else:
                    items.append(some_value(field, chance))
        elif field.message_type is not None:
            part = getattr(message, field.name)
            part.SetInParent()
            fill(part, chance, depth + 1)
        else:
            setattr(message, field.name, some_value(field, chance))


async def play(world: World, seed: int) -> None:
    chance = random.Random(seed)
    peer = world.peer()
    kind = chance.choice(("Exclusive", "Shared", "Failover", "Key_Shared"))
    await peer.producer(request_id=10_001)
    await peer.consumer(kind=kind, request_id=10_002, permits=100)
    peer.send(*(send(1, i) for i in range(5)))
    await world.settle()
    asked: dict[int, str] = {}
    for request_id in range(1, COMMANDS_PER_STORY + 1):
        type_ = chance.choice(KINDS)
        command = pb.BaseCommand(type=type_)
        body = getattr(command, FIELD_OF_TYPE[type_])
        body.SetInParent()
        fill(body, chance)
        if "request_id" in body.DESCRIPTOR.fields_by_name and body.HasField("request_id"):
            body.request_id = request_id
            asked[request_id] = f"{Type.Name(type_)} {body}"
        peer.send(encode_command(command))
        if chance.random() < 0.5:
            await world.settle()
    await world.settle()
    assert peer.closed is None, "legal commands closed the connection"
    silent = [text for request_id, text in asked.items() if peer.find_answer(request_id) is None]
    assert not silent
    peer.session.lost()
    await world.settle()
    for topic in world.broker.topics.values():
        assert not topic.producers
        for subscription in topic.subscriptions.values():
            assert subscription.durable, "a reader's subscription stayed behind"
            assert not subscription.consumers
    assert world.broker.intake.bytes_used == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_random_commands(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    in_world(lambda world: play(world, seed))
    failures = [record for record in caplog.records if record.exc_info]
    assert not failures, failures[0].getMessage()

"""How long what clients say may be: names, properties, schemas."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.names import TOPIC_CHARS_MAX, InvalidTopicNameError, TopicName, encode_local
from magnetar.broker.handlers.texts import NAME_CHARS_MAX, PROPERTIES_CHARS_MAX, PROPERTIES_MAX
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import TOPIC, Type, World, in_world

LONG_TOPIC = f"persistent://public/default/{'n' * TOPIC_CHARS_MAX}"
LONG_NAME = "n" * (NAME_CHARS_MAX + 1)
MANY = [pb.KeyValue(key=f"{n}", value="") for n in range(PROPERTIES_MAX + 1)]
LARGE = [pb.KeyValue(key="k", value="v" * PROPERTIES_CHARS_MAX)]
SUBSCRIBE: dict[str, Any] = {"consumer_id": 1, "subType": pb.CommandSubscribe.Shared}
SCHEMA = pb.Schema(name="s", type=pb.Schema.Json, schema_data=b"x" * ((1 << 20) + 1))


@pytest.mark.parametrize(
    ("kind", "fields", "code"),
    [
        (Type.LOOKUP, {"topic": LONG_TOPIC}, pb.InvalidTopicName),
        (Type.PARTITIONED_METADATA, {"topic": LONG_TOPIC}, pb.InvalidTopicName),
        (Type.PRODUCER, {"topic": LONG_TOPIC, "producer_id": 1}, pb.InvalidTopicName),
        (Type.PRODUCER, {"topic": TOPIC, "producer_id": 1, "producer_name": LONG_NAME}, pb.MetadataError),
        (Type.PRODUCER, {"topic": TOPIC, "producer_id": 1, "metadata": MANY}, pb.MetadataError),
        (Type.PRODUCER, {"topic": TOPIC, "producer_id": 1, "schema": SCHEMA}, pb.MetadataError),
        (Type.SUBSCRIBE, {**SUBSCRIBE, "topic": TOPIC, "subscription": LONG_NAME}, pb.MetadataError),
        (
            Type.SUBSCRIBE,
            {**SUBSCRIBE, "topic": TOPIC, "subscription": "s", "subscription_properties": LARGE},
            pb.MetadataError,
        ),
        (Type.GET_SCHEMA, {"topic": LONG_TOPIC}, pb.InvalidTopicName),
        (Type.GET_OR_CREATE_SCHEMA, {"topic": TOPIC, "schema": SCHEMA}, pb.MetadataError),
        (Type.GET_TOPICS_OF_NAMESPACE, {"namespace": LONG_NAME}, pb.MetadataError),
    ],
)
def test_what_is_too_long_is_refused_and_the_connection_stays(
    kind: int, fields: dict[str, Any], code: pb.ServerError, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        answer = await peer.ask(kind, request_id=7, **fields)
        told = getattr(answer, "error_code", None) or answer.error
        assert told == code
        assert peer.closed is None
        assert len(caplog.text) < 1_000
        assert not world.broker.topics

    in_world(story)


def test_long_names_that_are_allowed_work() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        topic = f"persistent://public/default/{'n' * 1_000}"
        await peer.producer(topic=topic)
        await peer.consumer(topic=topic, subscription="s" * NAME_CHARS_MAX)
        assert list(world.broker.topics) == [topic]

    in_world(story)


def test_long_names_are_not_remembered_and_not_told_whole() -> None:
    before = TopicName._parsed_before.cache_info().currsize
    name = f"persistent://public/default/{'é' * 1_000}"
    assert TopicName.parse(name) == TopicName.parse(name)
    assert TopicName.parse(name).encoded_local == "%C3%A9" * 1_000 == encode_local("é" * 1_000)
    assert TopicName._parsed_before.cache_info().currsize == before
    with pytest.raises(InvalidTopicNameError) as caught:
        TopicName.parse("n" * 5_000_000)
    assert len(str(caught.value)) < 500

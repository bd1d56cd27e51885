"""What clients ask of topics before they use them."""

from __future__ import annotations

from magnetar.base.names import TopicName
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import TOPIC, Type, World, in_world


def test_a_namespace_that_does_not_exist_yet_has_no_topics() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        answer = await peer.ask(Type.GET_TOPICS_OF_NAMESPACE, namespace="public/later", request_id=1)
        assert list(answer.topics) == []

    in_world(story)


def test_clients_ask_whether_a_topic_exists() -> None:
    async def story(world: World) -> None:
        peer = world.peer()

        async def asked(topic: str, request_id: int, **more: bool) -> tuple[int, int]:
            answer = await peer.ask(Type.PARTITIONED_METADATA, topic=topic, request_id=request_id, **more)
            return answer.error, answer.partitions

        await world.topic()
        await world.broker.policies.create_partitioned(TopicName.parse(TOPIC + "-parted"), 3)
        assert await asked(TOPIC, 1, metadata_auto_creation_enabled=False) == (0, 0)
        assert await asked(TOPIC + "-parted", 2, metadata_auto_creation_enabled=False) == (0, 3)
        missing = TOPIC + "-missing"
        assert await asked(missing, 3, metadata_auto_creation_enabled=False) == (pb.TopicNotFound, 0)
        assert await asked(missing, 4) == (0, 0)

    in_world(story)

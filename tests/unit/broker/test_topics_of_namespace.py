"""Lists of topics, as a client that subscribes by a pattern asks for them."""

from __future__ import annotations

from support.sessions import Type, World, in_world


def test_a_namespace_that_does_not_exist_yet_has_no_topics() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        answer = await peer.ask(Type.GET_TOPICS_OF_NAMESPACE, namespace="public/later", request_id=1)
        assert list(answer.topics) == []

    in_world(story)

"""Requests for moves, and what becomes of their records."""

from __future__ import annotations

from magnetar.base.names import TopicName
from magnetar.broker.ownership.place import HERE
from magnetar.broker.ownership.records import encode_move, move_path
from support.many_brokers import OTHER, OneOfSeveral, with_one_of_several
from support.waiting import eventually

_TOPIC = TopicName.parse("t")


def test_a_request_that_comes_after_the_claim_does_not_stay() -> None:
    """A look-up was faster than the split that names the owner of a part."""

    async def story(api: OneOfSeveral) -> None:
        await api.other_is_there()
        assert await api.owners.locate(_TOPIC, authoritative=True) == HERE
        path = move_path(await api.owners.bundle_of(_TOPIC))
        gone: list[bool] = []
        api.store.watch(path, lambda told: gone.append(told.change.value == "deleted"))
        await api.store.put(path, encode_move(api.owners.broker_id))
        await eventually(lambda: True in gone)
        assert await api.owners.locate(_TOPIC, authoritative=False) == HERE

    with_one_of_several(story)


def test_a_request_for_another_broker_stays_until_that_one_has_the_bundle() -> None:
    async def story(api: OneOfSeveral) -> None:
        await api.other_is_there()
        assert await api.owners.locate(_TOPIC, authoritative=True) == HERE
        bundle = await api.owners.bundle_of(_TOPIC)
        await api.store.put(move_path(bundle), encode_move(OTHER))
        await eventually(lambda: not api.owners.ownership.serves(bundle))
        assert await api.store.get(move_path(bundle)) is not None

    with_one_of_several(story)

"""Requests for moves, and what becomes of their records."""

from __future__ import annotations

import asyncio

from magnetar.base.names import TopicName
from magnetar.broker.ownership.place import HERE
from magnetar.broker.ownership.records import decode_move, encode_move, move_path, owner_path
from magnetar.metadata.store import Change, Notification, Stat
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


def test_what_a_look_up_wrote_down_meanwhile_stays() -> None:
    """A bundle leaves its owner for any other one. A look-up names one, where a client waits for it."""

    async def story(api: OneOfSeveral) -> None:
        await api.other_is_there()
        assert await api.owners.locate(_TOPIC, authoritative=True) == HERE
        bundle = await api.owners.bundle_of(_TOPIC)
        path, store = move_path(bundle), api.store

        def left(told: Notification) -> None:
            if told.change is Change.DELETED:
                written.append(asyncio.ensure_future(store.put(path, encode_move(OTHER))))

        written: list[asyncio.Future[Stat]] = []
        cancel = store.watch(owner_path(bundle), left)
        assert await api.owners._moves.move(bundle)
        cancel()
        await written[0]
        value = await store.get(path)
        assert value is not None
        assert decode_move(value.data) == OTHER

    with_one_of_several(story)

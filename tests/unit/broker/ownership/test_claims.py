"""Records of owners: a stale look takes none from the next owner."""

from __future__ import annotations

from magnetar.base.clock import ManualClock
from magnetar.base.names import TopicName
from magnetar.broker.ownership.records import owner_path
from support.many_brokers import OTHER, OneOfSeveral, urls_of, with_one_of_several


def test_an_owner_that_was_dead_and_is_back_keeps_its_record() -> None:
    """Its record is equal to the one of its former life, down to the version."""

    async def story(api: OneOfSeveral) -> None:
        bundle = await api.owners.bundle_of(TopicName.parse("t"))
        path = owner_path(bundle)
        await api.other_owns(bundle)
        asked: list[str] = []

        async def dead_once(host: str, _port: int) -> bool:
            asked.append(host)
            if len(asked) == 1:
                # Another broker frees the bundle, and the process that replaced the dead one claims it.
                await api.store.delete(path)
                clock = api.broker.clock
                assert isinstance(clock, ManualClock)
                clock.advance(1)
                await api.other_owns(bundle)
            return True

        api.owners.peers._probe = dead_once
        stale = await api.store.get(path)
        assert stale is not None
        claims = api.owners._claims
        assert await claims.free_if_dead(bundle, stale)
        assert asked[0] == OTHER.partition(":")[0]
        now = await api.store.get(path)
        assert now is not None
        assert now.data == urls_of(OTHER).encode() == stale.data
        assert now.stat.version == stale.stat.version
        # One that is still as it was read goes.
        await claims.remove(bundle, now)
        assert await api.store.get(path) is None

    with_one_of_several(story)

"""What of the topics that are not loaded is read again."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.unloaded import unloaded_topics
from magnetar.managedlog.logs import ManagedLogs
from magnetar.metadata.keys import MANAGED_LEDGERS
from magnetar.metadata.store import SessionEvent
from support.sessions import TOPIC, World, in_world

NAME = TopicName.parse(TOPIC)
OTHER = TopicName.parse(f"{TOPIC}-other")


@pytest.fixture
def peeked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the logs that were looked at."""
    found: list[str] = []
    peek = ManagedLogs.peek

    async def noted(self: ManagedLogs, name: str, hidden: frozenset[str]) -> object:
        found.append(name)
        return await peek(self, name, hidden)

    monkeypatch.setattr(ManagedLogs, "peek", noted)
    return found


async def made(world: World, *names: TopicName) -> None:
    for name in names:
        await world.broker.topic(name)
        await world.broker.unload(name)


def topics_in(world: World) -> int:
    return world.broker.unloaded.seen.sums["public/default"].topics


def test_what_has_not_changed_is_not_read_again(peeked: list[str]) -> None:
    async def story(world: World) -> None:
        await made(world, NAME)
        rounds = world.broker.unloaded.round
        await rounds()
        assert peeked == [NAME.log_name]
        await rounds()
        assert peeked == [NAME.log_name]
        assert topics_in(world) == 1
        await made(world, OTHER)
        await rounds()
        assert peeked[1:] == [NAME.log_name, OTHER.log_name]
        await world.broker.delete_topic(OTHER)
        await rounds()
        assert topics_in(world) == 1

    in_world(story)


def test_a_namespace_with_loaded_topics_is_read_until_none_is(peeked: list[str]) -> None:
    async def story(world: World) -> None:
        await made(world, NAME)
        rounds = world.broker.unloaded.round
        await rounds()
        await world.broker.topic(NAME)
        await rounds()
        assert topics_in(world) == 0
        await world.broker.unload(NAME)
        await rounds()
        assert topics_in(world) == 1
        del peeked[:]
        await rounds()
        assert peeked == []

    in_world(story)


def test_all_are_read_after_the_store_could_not_report(peeked: list[str]) -> None:
    async def story(world: World) -> None:
        await made(world, NAME)
        unloaded = world.broker.unloaded
        await unloaded.round()
        for event, again in (
            (SessionEvent.CONNECTION_LOST, 0),
            (SessionEvent.RECONNECTED, 1),
            (SessionEvent.SESSION_RENEWED, 1),
        ):
            del peeked[:]
            unloaded._changed._session_changed(event)
            await unloaded.round()
            assert len(peeked) == again, event

    in_world(story)


@dataclass(frozen=True)
class Only:
    name: TopicName | None

    @property
    def is_empty(self) -> bool:
        return self.name is None

    def has(self, topic: TopicName) -> bool:
        return topic == self.name


def test_a_broker_looks_after_its_share(peeked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unloaded_topics, "NAMES_PER_TURN", 1)

    async def story(world: World) -> None:
        await made(world, NAME, OTHER)
        unloaded, share = world.broker.unloaded, Only(NAME)

        async def share_of(namespace: NamespaceName) -> Only:
            return share

        unloaded.share_of = share_of
        await unloaded.round()
        assert (topics_in(world), peeked) == (1, [NAME.log_name])
        share = Only(OTHER)
        await unloaded.round()
        assert (topics_in(world), peeked) == (1, [NAME.log_name, OTHER.log_name])
        await unloaded.round()
        assert len(peeked) == 2

    in_world(story)


def test_a_broker_of_many_follows_the_namespaces_of_its_share_only(peeked: list[str]) -> None:
    async def story(world: World) -> None:
        await made(world, NAME)
        unloaded, share = world.broker.unloaded, Only(None)
        path = f"{MANAGED_LEDGERS}/{NAME.log_name}"

        async def share_of(namespace: NamespaceName) -> Only:
            return share

        async def is_reported() -> bool:
            unloaded._changed.take(str(NAME.namespace_name))
            found = await world.broker.store.get(path)
            assert found is not None
            await world.broker.store.put(path, found.data)
            return unloaded._changed.take(str(NAME.namespace_name))

        assert await is_reported(), "a broker alone follows all"
        unloaded.share_of = share_of
        await unloaded.round()
        assert (topics_in(world), peeked) == (0, [])
        assert not await is_reported()
        share = Only(NAME)
        await unloaded.round()
        assert (topics_in(world), peeked) == (1, [NAME.log_name])
        assert await is_reported()
        share = Only(None)
        await unloaded.round()
        assert topics_in(world) == 0
        assert not await is_reported()

    in_world(story)

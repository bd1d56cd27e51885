"""The metadata service is away: what is loaded goes on, and no caller waits for what cannot come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import TopicName
from magnetar.broker import lookup
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.ownership.place import HERE, TopicPlace
from magnetar.broker.policies.policies import PolicyStore
from magnetar.metadata import contact, keys
from magnetar.metadata.contact import Contact
from magnetar.metadata.store import SessionEvent, StoreUnreachableError
from support.ending_sessions import EndingSessions
from support.many_brokers import OneOfSeveral, urls_of, with_one_of_several

NAME = TopicName.parse("t")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact, "PATIENCE_S", 0.001)


def with_store(story: Callable[[EndingSessions], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(30):
            await story(EndingSessions(ManualClock()))

    asyncio.run(run())


def test_a_read_waits_through_a_short_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(store: EndingSessions) -> None:
        monkeypatch.setattr(contact, "PATIENCE_S", 1000.0)
        seen = Contact(store)
        await store.put("/a", b"a")
        store.leave()
        away = [seen.away]
        reading = asyncio.create_task(seen.read(store.get("/a")))
        await asyncio.sleep(0)
        store.back()
        value = await reading
        assert value is not None
        assert [*away, seen.away] == [True, False]
        assert seen.outages == 1
        seen.close()

    with_store(story)


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_read_ends_with_a_clear_error(when: str) -> None:
    async def story(store: EndingSessions) -> None:
        seen = Contact(store)
        store.leave(tell=when == "before")
        reading = asyncio.create_task(seen.read(store.get("/a")))
        await asyncio.sleep(0)
        store.tell(SessionEvent.CONNECTION_LOST)
        with pytest.raises(StoreUnreachableError, match="cannot be reached now; try again"):
            await reading

    with_store(story)


def test_an_error_of_the_read_itself_is_its_own() -> None:
    async def refused() -> None:
        raise TimeoutError

    async def story(store: EndingSessions) -> None:
        with pytest.raises(TimeoutError):
            await Contact(store).read(refused())

    with_store(story)


def test_what_was_missing_is_missing_while_the_service_is_away() -> None:
    """Else no client could attach to a loaded topic without partitions, which has no documents of its own."""

    async def story(store: EndingSessions) -> None:
        policies = PolicyStore(store, "c")
        policies.documents.share()
        assert await policies.partitions(NAME) == 0
        assert await policies.topic_policies(NAME) == {}
        store.leave()
        assert await policies.partitions(NAME) == 0
        assert await policies.topic_policies(NAME) == {}
        with pytest.raises(StoreUnreachableError):
            await policies.partitions(TopicName.parse("never-asked-for"))
        await store.put(keys.partitioned_topic(NAME), b'{"partitions":3}')
        assert await policies.partitions(NAME) == 0, "nobody was told yet"
        store.back()
        assert await policies.partitions(NAME) == 3
        policies.close()

    with_store(story)


def test_look_ups_and_attaches_go_by_what_is_known() -> None:
    async def story(api: OneOfSeveral) -> None:
        await api.other_is_there()
        owners, names = api.owners, [TopicName.parse(f"t{number}") for number in range(40)]
        assert await owners.locate(NAME, authoritative=True) == HERE
        await api.broker.topic(NAME)
        of_other = [name for name in names if await owners.bundle_of(name) != await owners.bundle_of(NAME)]
        elsewhere = of_other[0]
        bundle = await owners.bundle_of(elsewhere)
        (unknown, *_) = [name for name in of_other if await owners.bundle_of(name) != bundle]
        await api.other_owns(bundle)
        place = TopicPlace(urls_of("b:8080"))
        assert await owners.locate(elsewhere, authoritative=False) == place
        assert await lookup.partitions(api.broker, str(elsewhere)) == 0
        api.store.leave()
        try:
            assert await owners.locate(NAME, authoritative=False) == HERE
            for name in (NAME, elsewhere):
                assert await lookup.partitions(api.broker, str(name)) == 0
            with pytest.raises(StoreUnreachableError):
                await lookup.partitions(api.broker, str(elsewhere), may_come=False)
            assert await api.broker.any_topic(NAME) is api.broker.topics[str(NAME)]
            assert await owners.locate(elsewhere, authoritative=False) == place
            with pytest.raises(ServiceNotReadyError, match="cannot be reached now; try again"):
                await owners.locate(unknown, authoritative=False)
        finally:
            api.store.back()

    with_one_of_several(story)

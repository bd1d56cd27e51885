"""The metadata store on real servers: its contract, and what it does when they are gone for a while."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster
from magnetar.metadata.bookkeeper.registry import RegisteredBookie
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.etcd.etcd_store import EtcdMetadataStore
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    Change,
    MetadataStore,
    Put,
    SessionEvent,
)
from magnetar.metadata.zookeeper.zookeeper_store import ZooKeeperMetadataStore
from support.drivers import NotHereError
from support.metadata_contract import CONTRACT, Script, Traits
from support.metadata_servers import ServerProcess, etcd_server, zookeeper_server
from support.relay import Loss, Relay

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]

SESSION_MS = 2000
DEADLINE_S = 120.0
TRAITS = {
    "zookeeper": Traits(alone=False, ephemerals_with_children=False),
    "etcd": Traits(alone=False, first_versions=False),
}


class Backend:
    """A server, and stores on it."""

    def __init__(self, kind: str, server: ServerProcess) -> None:
        self.kind = kind
        self.server = server
        self.traits = TRAITS[kind]
        self.root = f"/test-{uuid.uuid4().hex[:12]}"

    async def open(self, **options: Any) -> MetadataStore:
        options = {"root": self.root, "session_timeout_ms": SESSION_MS, "call_timeout_s": 20.0} | options
        address = options.pop("address", self.server.address)
        if self.kind == "zookeeper":
            return await ZooKeeperMetadataStore.open([address], **options)
        return await EtcdMetadataStore.open([address], **options)

    def run(self, story: Callable[[MetadataStore], Awaitable[None]], **options: Any) -> None:
        async def body() -> None:
            store = await self.open(**options)
            try:
                await story(store)
            finally:
                await store.close()

        asyncio.run(body())


@pytest.fixture(scope="module", params=["zookeeper", "etcd"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    start = zookeeper_server if request.param == "zookeeper" else etcd_server
    try:
        with start(tmp_path_factory.mktemp(request.param)) as process:
            yield request.param, process
    except NotHereError as reason:
        pytest.skip(f"no {request.param}: {reason}")


@pytest.fixture
def backend(server: tuple[str, ServerProcess]) -> Backend:
    return Backend(*server)


@pytest.mark.parametrize("script", CONTRACT, ids=lambda script: script.__name__)
def test_the_contract_holds(backend: Backend, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    # A write that waits for a change of which nothing is told would wait for good.
    monkeypatch.setattr("magnetar.metadata.etcd.etcd_store.ANNOUNCE_S", 3600.0)

    async def story(store: MetadataStore) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await script(store, backend.traits)

    backend.run(story)


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER], ids=lambda loss: loss.value)
def test_a_write_whose_answer_is_lost_happens_once_and_is_answered(backend: Backend, loss: Loss) -> None:
    async def story() -> None:
        async with Relay(backend.server.address) as relay:
            store = await backend.open(address=relay.address)
            for path in ("/c", "/o", "/d"):
                await store.put(path, b"0")
            first = await store.put("/s/n-", b"", sequential=True)

            async def losing(write: Awaitable[Any]) -> Any:
                relay.lose(loss)
                result = await write
                assert relay.lost.is_set()
                return result

            assert (await losing(store.put("/new/a", b"1", expected_version=MUST_NOT_EXIST))).version == 0
            assert (await losing(store.put("/c", b"1", expected_version=0))).version == 1
            # The same bytes again: that they are there says nothing.
            assert (await losing(store.put("/c", b"1", expected_version=1))).version == 2
            assert (await losing(store.put("/o", b"1"))).version == 1
            await losing(store.delete("/d", expected_version=0))
            drawn = await losing(store.put("/s/n-", b"mine", sequential=True))
            assert drawn.path > first.path
            stats = await losing(store.transact([Put("/c", b"2", 2), Put("/e", b"1", MUST_NOT_EXIST)]))
            assert [stat.version for stat in stats] == [3, 0]
            with pytest.raises(BadVersionError):
                await losing(store.put("/c", b"x", expected_version=1))
            versions = {}
            for path in ("/new/a", "/c", "/o", "/d", "/e"):
                value = await store.get(path)
                versions[path] = None if value is None else value.stat.version
            assert versions == {"/new/a": 0, "/c": 3, "/o": 1, "/d": None, "/e": 0}
            assert len(await store.children("/s")) == 2
            await store.close()

    asyncio.run(story())


def test_a_lost_session_takes_its_values_along_and_a_new_one_begins(backend: Backend) -> None:
    async def story() -> None:
        async with Relay(backend.server.address) as relay:
            other = await backend.open()
            store = await backend.open(address=relay.address)
            events: list[SessionEvent] = []
            happened = asyncio.Event()

            def note(event: SessionEvent) -> None:
                events.append(event)
                happened.set()

            store.watch_session(note)
            gone, changed = asyncio.Event(), asyncio.Event()
            other.watch("/e", lambda told: gone.set() if told.change is Change.DELETED else None)
            store.watch("/e", lambda _: changed.set())
            await store.put("/e/mine", b"", ephemeral=True)
            relay.lose(Loss.EVERYTHING)
            await asyncio.wait_for(gone.wait(), 30)
            relay.lose(Loss.NOTHING)
            async with asyncio.timeout(30):
                while SessionEvent.SESSION_RENEWED not in events:
                    happened.clear()
                    await happened.wait()
            expected = [SessionEvent.CONNECTION_LOST, SessionEvent.SESSION_LOST, SessionEvent.SESSION_RENEWED]
            assert [event for event in events if event in expected] == expected
            assert await store.get("/e/mine") is None
            again = await store.put("/e/mine", b"", ephemeral=True, expected_version=MUST_NOT_EXIST)
            assert again.created_by_self
            seen = await other.get("/e/mine")
            assert seen is not None
            assert seen.stat.ephemeral
            assert not seen.stat.created_by_self
            changed.clear()
            await other.put("/e/theirs", b"")
            await asyncio.wait_for(changed.wait(), 30)
            await store.close()
            await other.close()

    asyncio.run(story())


def test_a_short_interruption_keeps_the_session(backend: Backend) -> None:
    async def story() -> None:
        async with Relay(backend.server.address) as relay:
            store = await backend.open(address=relay.address, session_timeout_ms=8000)
            back = asyncio.Event()
            store.watch_session(lambda event: back.set() if event is SessionEvent.RECONNECTED else None)
            changed = asyncio.Event()
            store.watch("/w", lambda _: changed.set())
            stat = await store.put("/e", b"", ephemeral=True)
            relay.lose(Loss.EVERYTHING)
            relay.lose(Loss.NOTHING)
            await asyncio.wait_for(back.wait(), 30)
            value = await store.get("/e")
            assert value is not None
            assert value.stat == stat
            await store.put("/w/x", b"")
            assert changed.is_set()
            await store.close()

    asyncio.run(story())


def test_a_bookie_is_registered_again_after_its_session_was_lost(backend: Backend) -> None:
    async def story() -> None:
        async with Relay(backend.server.address) as relay:
            other = await backend.open()
            tree = BookKeeperTree()
            await initialize_cluster(other, tree, str(uuid.uuid4()))
            looking = TreeBookieRegistry(other, tree)
            changed = asyncio.Event()
            looking.watch_bookies(changed.set)

            async def until(writable: set[str]) -> None:
                async with asyncio.timeout(30):
                    while (await looking.bookies()).writable != writable:
                        changed.clear()
                        await changed.wait()

            store = await backend.open(address=relay.address)
            registry = TreeBookieRegistry(store, tree)
            await registry.register(RegisteredBookie.at("b1", "127.0.0.1", 3181))
            await until({"b1"})
            relay.lose(Loss.EVERYTHING)
            await until(set())
            relay.lose(Loss.NOTHING)
            await until({"b1"})
            # Its next process finds the session of the last one, and waits for its end.
            relay.lose(Loss.EVERYTHING)
            next_store = await backend.open()
            next_registry = TreeBookieRegistry(next_store, tree)
            await next_registry.register(RegisteredBookie.at("b1", "127.0.0.1", 3182))
            info = await looking.info("b1")
            assert info is not None
            assert info.address() == ("127.0.0.1", 3182)
            for each in (registry, next_registry, looking):
                await each.close()
            for opened in (store, next_store, other):
                await opened.close()

    asyncio.run(story())


def test_increments_are_counted_once_over_kills_of_the_server(backend: Backend) -> None:
    writers, kills, rounds = 4, 2, 40

    async def story() -> None:
        store = await backend.open(session_timeout_ms=10_000, call_timeout_s=60.0)
        await store.put("/counter", b"0")
        progress = asyncio.Event()
        done = 0

        async def increment(number: int) -> None:
            nonlocal done
            for turn in range(rounds):
                await store.put(f"/made/{number}-{turn}", b"", expected_version=MUST_NOT_EXIST)
                while True:
                    value = await store.get("/counter")
                    assert value is not None
                    try:
                        await store.put(
                            "/counter", str(int(value.data) + 1).encode(), expected_version=value.stat.version
                        )
                        break
                    except BadVersionError:
                        continue
                done += 1
                progress.set()

        async def kill() -> None:
            for life in range(kills):
                while done < (life + 1) * writers * rounds // (kills + 2):
                    progress.clear()
                    await progress.wait()
                backend.server.kill()
                await asyncio.to_thread(backend.server.start)

        await asyncio.gather(kill(), *(increment(number) for number in range(writers)))
        value = await store.get("/counter")
        assert value is not None
        assert int(value.data) == writers * rounds == value.stat.version
        await store.close()

    asyncio.run(story())

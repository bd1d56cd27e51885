"""Bookies, cookies and ledgers in BookKeeper's tree, on stores within the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import LedgerEnd, NoSuchLedgerError
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.registry import LedgerExistsError
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster, open_tree
from magnetar.metadata.bookkeeper.ledger_layouts import LONG_ID_END, SHORT_ID_END, LayoutError, LedgerLayout
from magnetar.metadata.bookkeeper.registry import (
    BookieIdError,
    ClusterNotInitializedError,
    Cookie,
    RegisteredBookie,
)
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    MetadataStore,
    NotFoundError,
    SessionEvent,
)
from support.ending_sessions import EndingSessions
from support.storage import until

INSTANCE = "1c9d3ba8-1b8e-4b05-9e0e-5a7a3b6f7c11"
OPEN = LedgerMetadata(LedgerState.OPEN, None, ((0, ("a:1", "b:1", "c:1")),), 3, 2)

Script = Callable[[MetadataStore], Awaitable[None]]


@pytest.fixture(params=["memory", "embedded"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Script], None]:
    async def body(script: Script) -> None:
        store: MetadataStore = (
            MemoryMetadataStore(ManualClock())
            if request.param == "memory"
            else EmbeddedMetadataStore.open(tmp_path / "metadata.db", clock=ManualClock(), durable=False)
        )
        try:
            await script(store)
        finally:
            await store.close()

    return lambda script: asyncio.run(body(script))


def test_a_cluster_is_initialized_once(run: Callable[[Script], None]) -> None:
    async def script(store: MetadataStore) -> None:
        with pytest.raises(ClusterNotInitializedError):
            await open_tree(store)
        tree = BookKeeperTree()
        assert await initialize_cluster(store, tree, INSTANCE)
        assert not await initialize_cluster(store, tree, "another")
        assert await open_tree(store) == tree
        registry = TreeBookieRegistry(store, tree)
        assert await registry.instance_id() == INSTANCE
        await registry.close()
        with pytest.raises(LayoutError):
            await open_tree(store, layout=LedgerLayout.FLAT)
        with pytest.raises(LayoutError):
            await initialize_cluster(store, BookKeeperTree(layout=LedgerLayout.FLAT), INSTANCE)

    run(script)


def test_bookies_come_change_and_go(run: Callable[[Script], None]) -> None:
    async def script(store: MetadataStore) -> None:
        tree = BookKeeperTree("/bk/ledgers")
        await initialize_cluster(store, tree, INSTANCE)
        registry = TreeBookieRegistry(store, tree)
        changes: list[None] = []
        seen: list[frozenset[str]] = []

        async def look() -> None:
            seen.append((await registry.bookies()).all())

        cancel = registry.watch_bookies(lambda: changes.append(None))
        bookie = RegisteredBookie.at("b1", "127.0.0.1", 3181)
        await registry.register(bookie)
        assert len(changes) == 1
        await registry.register(bookie)
        assert (await registry.bookies()).writable == {"b1"}
        assert await registry.info("b1") == bookie
        await registry.register(bookie, read_only=True)
        live = await registry.bookies()
        assert (live.writable, live.read_only) == (frozenset(), {"b1"})
        assert await registry.info("b1") == bookie
        await registry.unregister("b1")
        await registry.unregister("b1")
        assert (await registry.bookies()).all() == frozenset()
        assert await registry.info("b1") is None
        assert len(changes) == 4
        cancel()
        await registry.register(bookie)
        assert len(changes) == 4
        with pytest.raises(BookieIdError):
            await registry.register(RegisteredBookie("readonly"))
        await registry.close()

    run(script)


def test_each_interruption_makes_another_connection(run: Callable[[Script], None]) -> None:
    async def script(_: MetadataStore) -> None:
        store = EndingSessions(ManualClock())
        registry = TreeBookieRegistry(store, BookKeeperTree())
        seen = [registry.connection_id()]
        assert registry.connection_id() == seen[0]
        for event in (SessionEvent.CONNECTION_LOST, SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED):
            store.tell(event)
            seen.append(registry.connection_id())
        assert len(set(seen)) == 4
        await registry.close()

    run(script)


def test_a_registration_of_a_session_that_ends_meanwhile_is_made_again(run: Callable[[Script], None]) -> None:
    """It went with its session, and as it was not known yet, it was not brought back."""

    async def script(_: MetadataStore) -> None:
        store = EndingSessions(ManualClock())
        store.ends = 2
        registry = TreeBookieRegistry(store, BookKeeperTree())
        await registry.register(RegisteredBookie("b1"))
        assert (await registry.bookies()).writable == {"b1"}
        await registry.close()

    run(script)


def test_what_a_session_took_along_is_brought_back_and_said(
    run: Callable[[Script], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def script(_: MetadataStore) -> None:
        store = EndingSessions(ManualClock())
        registry = TreeBookieRegistry(store, BookKeeperTree())
        await registry.register(RegisteredBookie("b1"))
        await store.delete(registry.tree.registration("b1", read_only=False))
        store.tell(SessionEvent.SESSION_LOST)
        assert (await registry.bookies()).all() == frozenset()
        store.tell(SessionEvent.SESSION_RENEWED)
        await until(lambda: "b1 is registered again" in caplog.text)
        assert (await registry.bookies()).writable == {"b1"}
        assert "the session ended, and with it the registration of bookie b1" in caplog.text
        await registry.close()

    run(script)


def test_an_id_may_be_an_address() -> None:
    assert RegisteredBookie("127.0.0.1:3181").address() == ("127.0.0.1", 3181)
    assert RegisteredBookie("bookie-7").address() is None
    assert RegisteredBookie("a:99999").address() is None
    assert RegisteredBookie.at("bookie-7", "host", 1).address() == ("host", 1)


def test_cookies_are_compared_and_set(run: Callable[[Script], None]) -> None:
    async def script(store: MetadataStore) -> None:
        registry = TreeBookieRegistry(store, BookKeeperTree())
        cookie = Cookie("b1", ("/j",), ("/a", "/b cé"), INSTANCE)
        assert await registry.cookie("b1") is None
        version = await registry.put_cookie(cookie, expected_version=MUST_NOT_EXIST)
        assert await registry.cookie("b1") == (cookie, version)
        with pytest.raises(BadVersionError):
            await registry.put_cookie(cookie, expected_version=MUST_NOT_EXIST)
        assert await registry.known_bookies() == {"b1"}
        await registry.delete_cookie("b1", expected_version=version)
        with pytest.raises(NotFoundError):
            await registry.delete_cookie("b1", expected_version=version)
        await registry.close()

    run(script)


def test_only_the_generation_that_was_judged_is_raised(run: Callable[[Script], None]) -> None:
    async def script(store: MetadataStore) -> None:
        registry = TreeBookieRegistry(store, BookKeeperTree())
        cookie = Cookie("b1", ("/j",), ("/a",), INSTANCE)
        version = await registry.put_cookie(cookie, expected_version=MUST_NOT_EXIST)
        seen = await registry.raise_generation("b1", version)
        # An older copy comes in its place.
        await registry.delete_cookie("b1", expected_version=seen)
        await registry.put_cookie(cookie, expected_version=MUST_NOT_EXIST)
        with pytest.raises(BadVersionError):
            await registry.raise_generation("b1", seen)
        await registry.close()

    run(script)


def test_ledgers_are_created_changed_and_deleted(run: Callable[[Script], None]) -> None:
    async def script(store: MetadataStore) -> None:
        tree = BookKeeperTree()
        await initialize_cluster(store, tree, INSTANCE)
        ledgers = TreeLedgerRegistry(store, tree, creation_token=iter(range(5, 99)).__next__)
        first = await ledgers.create(OPEN)
        second = await ledgers.create(OPEN)
        assert (first.ledger_id, second.ledger_id) == (0, 1)
        assert (first.metadata.creation_token, second.metadata.creation_token) == (5, 6)
        assert await ledgers.read(0) == first
        changes: list[None] = []
        ledgers.watch(0, lambda: changes.append(None))
        closed = await ledgers.write(0, first.metadata.closed(LedgerEnd(4, 9)), first.version)
        assert await ledgers.read(0) == closed
        assert len(changes) == 1
        with pytest.raises(BadVersionError):
            await ledgers.write(0, first.metadata, first.version)
        await store.put(tree.ledger(2), b"somebody's")
        with pytest.raises(LedgerExistsError):
            await ledgers.create(OPEN, 1)
        assert (await ledgers.create(OPEN, 7)).ledger_id == 7
        assert sorted([ledger_id async for ledger_id in ledgers.ledger_ids()]) == [0, 1, 2, 7]
        await ledgers.delete(0)
        await ledgers.delete(0)
        with pytest.raises(NoSuchLedgerError):
            await ledgers.read(0)
        with pytest.raises(BadVersionError) as caught:
            await ledgers.write(0, first.metadata, 1)
        assert caught.value.actual is None

    run(script)


def test_a_creation_whose_answer_was_lost_is_known_again(run: Callable[[Script], None]) -> None:
    async def script(store: MetadataStore) -> None:
        ledgers = TreeLedgerRegistry(store, BookKeeperTree(), creation_token=lambda: 5)
        first = await ledgers.create(OPEN, 7)
        assert await ledgers.create(OPEN, 7) == first

    run(script)


def test_long_ids_follow_when_short_ones_have_run_out(run: Callable[[Script], None]) -> None:
    async def script(store: MetadataStore) -> None:
        tree = BookKeeperTree()
        ledgers = TreeLedgerRegistry(store, tree)
        assert (await ledgers.create(OPEN)).ledger_id == 0
        # A client that goes over to long ids takes all others along.
        await store.put(f"{tree.long_id_generator}/HOB-0000000003", b"")
        drawn = [(await ledgers.create(OPEN)).ledger_id for _ in range(2)]
        assert drawn == [3 << 32, 3 << 32 | 1]
        assert await store.exists("/ledgers/000/0000/0128/8490/L1888")
        assert sorted([ledger_id async for ledger_id in ledgers.ledger_ids()]) == [0, *drawn]

    run(script)


@pytest.mark.parametrize("layout", LedgerLayout)
def test_a_ledger_that_the_layout_cannot_have_does_not_exist(
    run: Callable[[Script], None], layout: LedgerLayout
) -> None:
    """A client that wrote such a ledger to a bookie ended each of its searches for deleted ledgers."""

    async def script(store: MetadataStore) -> None:
        tree = BookKeeperTree(layout=layout)
        await initialize_cluster(store, tree, INSTANCE)
        registry = TreeBookieRegistry(store, tree)
        for ledger_id in (0, SHORT_ID_END, LONG_ID_END - 1):
            assert not await registry.ledger_exists(LedgerId(ledger_id))
        await registry.close()

    run(script)

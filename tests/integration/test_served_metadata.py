"""The metadata store of another process: the contract over a real UNIX socket, sessions, and lost
connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import MetadataError, StartupError
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.served import call_codec
from magnetar.metadata.served.metadata_server import MetadataServer
from magnetar.metadata.served.served_store import ServedMetadataStore
from magnetar.metadata.store import (
    Change,
    Notification,
    OutcomeUnknownError,
    SessionEvent,
    StoreUnreachableError,
)
from support.metadata_contract import CONTRACT, Script, Traits
from support.waiting import eventually

pytestmark = pytest.mark.one_process("own")


class Place:
    """Where a store is served, by one server after the other."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "metadata.sock"
        self.clock = ManualClock(1000)
        self.server: MetadataServer
        self._file = folder / "metadata.db"
        self._store: EmbeddedMetadataStore

    async def begin(self, **options: float) -> None:
        self._store = EmbeddedMetadataStore.open(self._file, clock=self.clock, durable=False)
        self.server = MetadataServer(self._store, **options)
        await self.server.start(self.socket)

    async def end(self) -> None:
        await self.server.close()
        await self._store.close()

    @asynccontextmanager
    async def store(self, call_timeout_s: float = 30.0) -> AsyncIterator[ServedMetadataStore]:
        store = await ServedMetadataStore.open(self.socket, call_timeout_s=call_timeout_s)
        try:
            yield store
        finally:
            await store.close()


def run(folder: Path, story: Callable[[Place], Awaitable[None]], **options: float) -> None:
    async def body() -> None:
        place = Place(folder)
        await place.begin(**options)
        try:
            await story(place)
        finally:
            await place.end()

    asyncio.run(body())


@pytest.mark.parametrize("script", CONTRACT, ids=lambda script: script.__name__)
def test_the_contract_holds(script: Script, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        async with place.store() as store:
            await script(store, Traits(place.clock, alone=False))

    run(tmp_path, story)


def test_a_connection_is_a_session(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        async with place.store() as stays:
            told: list[Notification] = []
            stays.watch("/e", told.append)
            async with place.store() as goes:
                await goes.put("/e/goes", b"", ephemeral=True)
                await goes.put("/e/kept", b"")
                await stays.put("/e/stays", b"", ephemeral=True)
                mine, others = await stays.get("/e/stays"), await stays.get("/e/goes")
                assert mine is not None
                assert others is not None
                assert (mine.stat.created_by_self, others.stat.created_by_self) == (True, False)
                assert len(told) >= 3, "what another one writes is told"
            await eventually(lambda: Notification(Change.DELETED, "/e/goes") in told)
            assert await stays.children("/e") == ["kept", "stays"]

    run(tmp_path, story)


def test_another_server_is_another_session(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        async with place.store() as store:
            events: list[SessionEvent] = []
            store.watch_session(events.append)
            await store.put("/e/mine", b"", ephemeral=True)
            await store.put("/e/kept", b"x")
            await place.end()
            await eventually(lambda: events == [SessionEvent.CONNECTION_LOST])
            waits = asyncio.ensure_future(store.get("/e/kept"))
            await place.begin()
            found = await waits
            assert found is not None
            assert found.data == b"x"
            assert events[1:] == [SessionEvent.SESSION_LOST, SessionEvent.SESSION_RENEWED]
            assert await store.get("/e/mine") is None
            told: list[Notification] = []
            store.watch("/e", told.append)
            await store.put("/e/again", b"", ephemeral=True)
            assert told

    run(tmp_path, story)


def test_a_write_without_an_answer_is_not_repeated(tmp_path: Path) -> None:
    """The server that got it is gone before it answers: reads are asked again, a write is not."""

    async def story(place: Place) -> None:
        async with place.store() as store:
            stuck = asyncio.get_running_loop().create_future()

            async def put(*_arguments: object, **_options: object) -> None:
                await stuck

            place.server.store.put = put  # type: ignore[method-assign, assignment]  # one that hangs
            write = asyncio.ensure_future(store.put("/a", b"1"))
            await eventually(lambda: not all(each.idle.is_set() for each in place.server._sessions))
            stuck.set_result(None)
            for session in list(place.server._sessions):
                session.end()
            with pytest.raises(OutcomeUnknownError, match="whether the change was made is not known"):
                await write
            assert await store.get("/a") is None

    run(tmp_path, story)


def test_a_deletion_without_an_answer_is_not_repeated(tmp_path: Path) -> None:
    """Another process may have made something there meanwhile."""

    async def story(place: Place) -> None:
        async with place.store() as store, place.store() as other:
            deleted = place.server.store.delete_recursive

            async def delete(path: str) -> None:
                await deleted(path)
                await other.put("/a/new", b"")
                place.server.store.delete_recursive = deleted  # type: ignore[method-assign]
                for session in list(place.server._sessions):
                    session.end()

            place.server.store.delete_recursive = delete  # type: ignore[method-assign]
            with pytest.raises(OutcomeUnknownError, match="whether the change was made is not known"):
                await store.delete_recursive("/a")
            assert await other.children("/a") == ["new"]

    run(tmp_path, story)


def test_a_read_without_an_answer_ends(tmp_path: Path) -> None:
    """Asked again on the same connection when its time is over, it would be asked without end."""

    async def story(place: Place) -> None:
        async with place.store(call_timeout_s=0.1) as store:

            async def get(_path: str) -> None:
                await asyncio.get_running_loop().create_future()

            place.server.store.get = get  # type: ignore[method-assign, assignment]  # one that hangs
            async with asyncio.timeout(10):
                with pytest.raises(StoreUnreachableError, match=r"did not answer in 0\.1 s"):
                    await store.get("/a")
            place.server.tasks.spawn(place.server.tasks.close())

    run(tmp_path, story)


def test_many_large_values_at_once_are_answered(tmp_path: Path) -> None:
    """More than may wait for a client, which reads all the same: its session stays."""

    async def story(place: Place) -> None:
        async with place.store() as store:
            events: list[SessionEvent] = []
            store.watch_session(events.append)
            value = b"x" * (1 << 20)
            await store.put("/large", value)
            found = await asyncio.gather(*(store.get("/large") for _ in range(80)))
            assert all(each is not None and each.data == value for each in found)
            assert events == []

    run(tmp_path, story)


def test_what_is_too_long_is_an_error_of_its_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(place: Place) -> None:
        async with place.store() as store:
            events: list[SessionEvent] = []
            store.watch_session(events.append)
            for number in range(20):
                await store.put(f"/long/{number:0100}", b"")
            monkeypatch.setattr(call_codec, "FRAME_BYTES_MAX", 1000)
            with pytest.raises(MetadataError, match="bytes in one call or answer"):
                await store.children("/long")
            with pytest.raises(MetadataError, match="bytes in one call or answer"):
                await store.put("/long", b"x" * 1000)
            assert events == []

    run(tmp_path, story)


def test_a_store_that_fails_in_an_unknown_way_is_an_error_of_its_call(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        async with place.store() as store:

            async def get(_path: str) -> None:
                raise ValueError("odd")

            place.server.store.get = get  # type: ignore[method-assign, assignment]  # one that fails
            with pytest.raises(MetadataError, match="odd"):
                await store.get("/a")

    run(tmp_path, story)


def test_a_paused_server_takes_no_client_for_silent(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        async with place.store() as store:
            await store.put("/a", b"")
            loop = asyncio.get_running_loop()
            ahead = loop.time
            loop.time = lambda: ahead() + 60.0  # type: ignore[method-assign]
            try:
                await place.server._ask()
            finally:
                del loop.time
            assert place.server.sessions == 1
            await store.put("/a", b"")

    run(tmp_path, story)


def test_a_place_that_is_too_long_is_named(tmp_path: Path) -> None:
    async def body() -> None:
        place = Place(tmp_path / ("x" * 100))
        place.socket.parent.mkdir()
        with pytest.raises(StartupError, match="too long; give another folder"):
            await place.begin()
        await place.end()

    asyncio.run(body())


def test_a_client_that_says_nothing_loses_its_session(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as silent:
            silent.connect(str(place.socket))
            async with place.store():
                await eventually(lambda: place.server.sessions == 2)
                await eventually(lambda: place.server.sessions == 1)

    run(tmp_path, story, silent_s=1.0)


def test_without_a_server_a_call_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(StoreUnreachableError, match="storage process of this server"):
            await ServedMetadataStore.open(tmp_path / "none.sock", call_timeout_s=0.05)

    asyncio.run(story())

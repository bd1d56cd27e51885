"""A broker and the bookies beside it: what it asks of them while a point in time is taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from magnetar.base.errors import StorageError
from magnetar.bookie.segment_store import SegmentStore
from magnetar.observability.metrics import Registry
from magnetar.server.bookies import bookie_requests
from magnetar.server.bookies.beside_storage import KeptBeside
from magnetar.server.bookies.bookie_requests import (
    ENDS,
    GO,
    HOLD,
    PAUSE,
    READ,
    BookieAnswers,
    BookieRequests,
)
from magnetar.server.bookies.local_bookie import LocalBookie
from magnetar.server.bookies.local_bookies import LocalBookies
from support.storage import Sink, run, store_in


class _Pipes:
    """A bookie's process as its broker sees it; `bookie` answers what is written to it."""

    def __init__(self, bookie: BookieAnswers | None) -> None:
        self.stdin = self
        self.stdout = asyncio.StreamReader()
        self._bookie = bookie

    @property
    def bookie(self) -> BookieAnswers:
        assert self._bookie is not None
        return self._bookie

    def write(self, data: bytes) -> None:
        for piece in (data[:1], data[1:]):
            if self._bookie is not None:
                self.stdout.feed_data(self._bookie.take(piece))


@asynccontextmanager
async def talking(store: SegmentStore | None, *, silent: bool = False) -> AsyncIterator[BookieRequests]:
    registry = Registry()
    registry.gauge("up", "Whether it is there.").value = 1.0
    answers = BookieAnswers(registry, "bookie-1")
    answers.stores = () if store is None else (store,)
    process = _Pipes(None if silent else answers)
    requests = BookieRequests("bookie-1", cast(Any, process))
    listening = asyncio.create_task(requests.listen())
    yield requests
    process.stdout.feed_eof()
    await listening


async def written(store: SegmentStore, ledger_id: int) -> None:
    sink = Sink()
    appender = store.appender(ledger_id, sink)
    appender.append([b"entry"], None, 0, 1)
    await sink.reached(0)
    store.release(appender)


def test_a_held_bookie_deletes_when_it_is_let_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with store_in(tmp_path) as store, talking(store) as requests:
            await written(store, 1)
            await requests.ask(HOLD)
            await requests.ask(HOLD)
            deleting = asyncio.create_task(store.delete(1))
            await asyncio.sleep(0)
            # It would be behind the tombstone, if there was one.
            await written(store, 2)
            assert await requests.ask(ENDS) == dict([store.supply.durable_end])
            assert not deleting.done()
            assert store.ledger_ids() == {1, 2}
            await requests.ask(GO)
            await deleting
            assert store.ledger_ids() == {2}

    run(scenario())


def test_a_bookie_that_was_started_anew_holds_nothing_and_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with store_in(tmp_path) as store, talking(store) as requests:
            with pytest.raises(StorageError, match="bookie-1: it was restarted: try again"):
                await requests.ask(ENDS)
        async with talking(None) as requests:
            with pytest.raises(StorageError, match="still starting"):
                await requests.ask(HOLD)

    run(scenario())


def test_a_bookie_that_ends_or_says_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with talking(None, silent=True) as requests:
            asking = asyncio.create_task(requests.ask(HOLD))
            await asyncio.sleep(0)
        with pytest.raises(StorageError, match="bookie-1 has ended"):
            await asking
        with pytest.raises(StorageError, match="bookie-1 has ended"):
            await requests.ask(GO)
        monkeypatch.setitem(bookie_requests._ANSWER_S, HOLD, 0.01)
        async with talking(None, silent=True) as requests:
            with pytest.raises(StorageError, match="bookie-1 did not answer"):
                await requests.ask(HOLD)

    run(scenario())


def test_what_is_no_answer_is_passed_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with store_in(tmp_path) as store, talking(store) as requests:
            pipes = cast(_Pipes, requests._process)
            pipes.stdout.feed_data(b"a warning of a library\n17 {}\n1 {\n")
            assert await requests.ask(HOLD) == {}

    run(scenario())


class _Asked:
    """A bookie that notes what is asked of it."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self._name = name
        self._seen = seen
        self.fails = False

    async def ask(self, what: str) -> dict[str, object]:
        self._seen.append(f"{self._name} {what}")
        return {}

    async def ends(self) -> dict[str, int]:
        await self.ask(ENDS)
        if self.fails:
            raise StorageError(f"{self._name} has ended")
        return {"1.seg": 7}


def test_all_ends_are_of_one_moment() -> None:
    """No bookie reads while each is asked: an add that came later would confirm what another one has not."""

    async def scenario() -> None:
        seen: list[str] = []
        bookies = LocalBookies(cast(Any, None), [bookie("b1"), bookie("b2")])
        asked = {name: _Asked(name, seen) for name in ("b1", "b2")}
        bookies._requests = cast(Any, asked)
        assert await bookies.ends() == {f"bookies/{name}/segments/1.seg": 7 for name in asked}
        asked["b2"].fails = True
        with pytest.raises(StorageError, match="b2 has ended"):
            await bookies.ends()
        each = ["b1 pause", "b2 pause", "b1 ends", "b2 ends", "b1 read", "b2 read"]
        assert seen == [*each, *each]
        del bookies._requests["b2"]
        with pytest.raises(StorageError, match="b2 does not run"):
            await bookies.ends()
        assert seen[12:] == ["b1 pause", "b1 read"], "the others go on"

    run(scenario())


class _Steps:
    """The guard of the folders, and the bookies, which note what is asked of them."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @asynccontextmanager
    async def steady(self) -> AsyncIterator[None]:
        self.seen.append("generation stays")
        yield
        self.seen.append("generation may rise")

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        self.seen.append("deletions wait")
        yield
        self.seen.append("deletions go on")

    async def ends(self) -> dict[str, int]:
        self.seen.append("ends")
        return {}


def test_the_generation_and_the_ledgers_stay_while_they_are_copied() -> None:
    async def scenario() -> None:
        steps = _Steps()
        async with KeptBeside(cast(Any, steps), cast(Any, steps)).held() as ends:
            await ends()
        begun = ["generation stays", "deletions wait"]
        assert steps.seen == [*begun, "ends", "deletions go on", "generation may rise"]

    run(scenario())


def bookie(name: str) -> LocalBookie:
    return LocalBookie(
        name=name,
        folder="",
        metadata_file="",
        segment_bytes=1 << 20,
        packet_bytes_max=1 << 20,
        log_level="INFO",
        log_json=False,
    )


def test_a_pause_ends_with_the_request_for_it_and_with_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        paused: list[str] = []

        @contextmanager
        def pausing() -> Iterator[None]:
            paused.append("begins")
            yield
            paused.append("ends")

        async with store_in(tmp_path) as store, talking(store) as requests:
            cast(_Pipes, requests._process).bookie.paused = pausing
            with pytest.raises(StorageError, match="was restarted"):
                await requests.ask(PAUSE)
            await requests.ask(HOLD)
            await requests.ask(PAUSE)
            assert await requests.ends() == dict([store.supply.durable_end])
            assert paused == ["begins"]
            await requests.ask(READ)
            assert paused == ["begins", "ends"]
            await requests.ask(PAUSE)
            await requests.ask(GO)
            assert paused == ["begins", "ends", "begins", "ends"]

    run(scenario())


def test_a_bookie_tells_its_metrics(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with store_in(tmp_path) as store, talking(store) as requests:
            found = await requests.metrics()
            assert ("up", 'up{process="bookie-1"} 1.0\n') in [(each.name, each.samples) for each in found]

    run(scenario())

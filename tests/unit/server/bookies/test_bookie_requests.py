"""A broker and the bookies beside it: what it asks of them while a point in time is taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from magnetar.base.errors import StorageError
from magnetar.bookie.segment_store import SegmentStore
from magnetar.server.bookies import bookie_requests
from magnetar.server.bookies.bookie_requests import ENDS, GO, HOLD, BookieAnswers, BookieRequests
from magnetar.server.bookies.replicated_stores import KeptBeside
from support.storage import Sink, run, store_in


class _Pipes:
    """A bookie's process as its broker sees it; `bookie` answers what is written to it."""

    def __init__(self, bookie: BookieAnswers | None) -> None:
        self.stdin = self
        self.stdout = asyncio.StreamReader()
        self._bookie = bookie

    def write(self, data: bytes) -> None:
        for piece in (data[:1], data[1:]):
            if self._bookie is not None:
                self.stdout.feed_data(self._bookie.take(piece))


@asynccontextmanager
async def talking(store: SegmentStore | None, *, silent: bool = False) -> AsyncIterator[BookieRequests]:
    answers = BookieAnswers()
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


class _Steps:
    """The parts of a broker with bookies, each of which notes what is asked of it."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.fails = False

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

    @contextmanager
    def holding_adds(self) -> Any:
        self.seen.append("adds wait")
        try:
            yield
        finally:
            self.seen.append("adds go on")

    async def ends(self) -> Mapping[str, int]:
        self.seen.append("ends")
        if self.fails:
            raise StorageError("bookie-2 has ended")
        return {"bookies/bookie-1/segments/1.seg": 7}


def test_all_ends_are_of_one_moment() -> None:
    """Adds wait while each bookie is asked: an add that came later would confirm what another one has not."""

    async def scenario() -> None:
        steps = _Steps()
        part = cast(Any, steps)
        async with KeptBeside(part, part, part).held() as ends:
            assert await ends() == {"bookies/bookie-1/segments/1.seg": 7}
            steps.fails = True
            with pytest.raises(StorageError):
                await ends()
        asked = ["adds wait", "ends", "adds go on"]
        begun = ["generation stays", "deletions wait"]
        assert steps.seen == [*begun, *asked, *asked, "deletions go on", "generation may rise"]

    run(scenario())

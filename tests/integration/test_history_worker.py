"""The worker process: calls, errors, cancellation, and its end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from magnetar.base.entries import EntryRun
from magnetar.tiered.footers import read_footer
from magnetar.tiered.parquet.offload_worker import OffloadWorker
from magnetar.tiered.parquet.parquet_history import (
    DamagedSegmentError,
    HistoryError,
    SegmentOrigin,
    WorkerLostError,
)
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]

ORIGIN = SegmentOrigin("persistent://public/default/orders", 5)
TIME_MS = 1_700_000_000_000


def runs_of(count: int) -> list[EntryRun]:
    entries = [
        build_entry(
            pb.MessageMetadata(
                producer_name="p", sequence_id=at, publish_time=TIME_MS + at, partition_key=f"k{at}"
            ),
            b"payload %d" % at,
        )
        for at in range(count)
    ]
    return [EntryRun(5, at, entries[at : at + 100], None, at, TIME_MS + at) for at in range(0, count, 100)]


def files(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


async def supplied(runs: Sequence[EntryRun]) -> AsyncIterator[Sequence[EntryRun]]:
    for run in runs:
        yield [run]


class Source:
    """A segment that the test's process reads."""

    def __init__(self, file: Path, *, by_path: bool = False) -> None:
        self.name = file.name
        self.size = file.stat().st_size
        self.path = str(file) if by_path else None
        self.footer = read_footer(file)
        self._file = file
        self.reads = 0
        self.failure: Exception | None = None

    async def read_at(self, offset: int, length: int) -> bytes:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return self._file.read_bytes()[offset : offset + length]


def with_worker(story: Callable[[OffloadWorker], Awaitable[None]], niceness: int = 0) -> None:
    async def tell() -> None:
        worker = OffloadWorker(niceness=niceness)
        try:
            await story(worker)
        finally:
            await worker.close()

    # Where others take all cores, one that lets them go first takes minutes to start.
    asyncio.run(asyncio.wait_for(tell(), 600 if niceness else 60))


def test_segments_by_a_worker(tmp_path: Path) -> None:
    """All calls; the worker starts with the first one and is gone after `close`."""
    path = tmp_path / "segment"
    runs = runs_of(1000)

    async def story(worker: OffloadWorker) -> None:
        assert worker.pid is None
        summary = await worker.convert(supplied(runs), ORIGIN, str(path))
        assert (summary.last_entry, summary.file_bytes) == (999, path.stat().st_size)
        assert worker.pid is not None
        assert os.getpriority(os.PRIO_PROCESS, worker.pid) >= 10
        remote = Source(path)
        for source in (remote, Source(path, by_path=True)):
            (run, *_) = await worker.entries(source, 5, 500, 1 << 20)
            assert run.entries == runs[5].entries
            assert run.base_index == 500
            assert await worker.position_at(source, 5, TIME_MS + 400) == 400
            (found,) = await worker.lookup(source, b"k77", 10)
            assert found.payload == b"payload 77"
            assert await worker.verify(source, supplied(runs)) == 1000
        assert remote.reads > 0
        entry = 0
        for run in runs:
            # From the second one on the worker reads ahead.
            (read, *_) = await worker.entries(remote, 5, entry, 1 << 20)
            assert read.entries == run.entries
            entry += len(run.entries)

    with_worker(story, niceness=10)


def test_errors_are_told_and_the_worker_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    runs = runs_of(200)

    async def broken() -> AsyncIterator[Sequence[EntryRun]]:
        yield runs[:1]
        raise ValueError("the ledger cannot be read")

    async def story(worker: OffloadWorker) -> None:
        with pytest.raises(HistoryError, match="follows"):
            await worker.convert(supplied([runs[0], runs[0]]), ORIGIN, str(path))
        with pytest.raises(ValueError, match="cannot be read"):
            await worker.convert(broken(), ORIGIN, str(path))
        with pytest.raises(HistoryError, match="No such file"):
            await worker.convert(supplied(runs), ORIGIN, str(tmp_path / "nowhere" / "segment"))
        assert files(tmp_path) == []
        pid = worker.pid
        await worker.convert(supplied(runs), ORIGIN, str(path))
        source = Source(path)
        source.failure = ConnectionAbortedError("the store is away")
        with pytest.raises(ConnectionAbortedError, match="store"):
            await worker.entries(source, 5, 0, 1000)
        source.failure = None
        with pytest.raises(DamagedSegmentError, match="not 200"):
            await worker.entries(source, 5, 200, 1000)
        with pytest.raises(DamagedSegmentError, match="other bytes"):
            await worker.verify(
                source, supplied([runs[0], EntryRun(5, 100, runs[0].entries, None, 100, TIME_MS + 100)])
            )
        assert worker.pid == pid

    with_worker(story)


def test_a_cancelled_conversion_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    runs = runs_of(200)

    async def story(worker: OffloadWorker) -> None:
        asked = asyncio.Event()
        go_on = asyncio.Event()

        async def slow() -> AsyncIterator[Sequence[EntryRun]]:
            yield runs[:1]
            asked.set()
            await go_on.wait()
            yield runs[1:]

        task = asyncio.create_task(worker.convert(slow(), ORIGIN, str(path)))
        await asked.wait()
        assert path.exists()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        pid = worker.pid
        # Waits for its turn, so the cancelled call has ended then.
        await worker.convert(supplied(runs), ORIGIN, str(tmp_path / "next"))
        assert worker.pid == pid
        assert files(tmp_path) == ["next"]

    with_worker(story)


def test_a_killed_worker_is_said_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    runs = runs_of(200)

    async def story(worker: OffloadWorker) -> None:
        async def killing() -> AsyncIterator[Sequence[EntryRun]]:
            yield runs[:1]
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            yield runs[1:]

        with pytest.raises(WorkerLostError, match="-9"):
            await worker.convert(killing(), ORIGIN, str(path))
        path.unlink()
        assert (await worker.convert(supplied(runs), ORIGIN, str(path))).last_entry == 199

    with_worker(story)


def test_an_idle_worker_ends(tmp_path: Path) -> None:
    async def story() -> None:
        worker = OffloadWorker(idle_s=0.01, niceness=0)
        await worker.convert(supplied(runs_of(100)), ORIGIN, str(tmp_path / "segment"))
        while worker.pid is not None:  # noqa: ASYNC110  (the worker does not tell that it ended)
            await asyncio.sleep(0.01)
        assert (await worker.convert(supplied(runs_of(100)), ORIGIN, str(tmp_path / "next"))).rows == 100
        await worker.close()
        with pytest.raises(WorkerLostError, match="closed"):
            await worker.convert(supplied(runs_of(100)), ORIGIN, str(tmp_path / "third"))

    asyncio.run(asyncio.wait_for(story(), 60))

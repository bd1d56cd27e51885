"""The broker's side of the worker process, which starts with the first call and ends when idle.

Each call is its own task. When its caller is cancelled, the task continues to the end of the call, so that
both sides stay in step: a conversion is stopped at its next question, the result of a read is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import magnetar
from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId
from magnetar.base.recent import Recent
from magnetar.runtime.tasks import begin, call_later, ended, pause, yield_loop
from magnetar.tiered.joined_source import JoinedSource
from magnetar.tiered.parquet import requests
from magnetar.tiered.parquet.frames import (
    HEAD,
    RANGE,
    SIZE,
    FrameKind,
    decode_runs,
    iterate_runs,
)
from magnetar.tiered.parquet.handover import Handover
from magnetar.tiered.parquet.parquet_history import (
    AsyncByteSource,
    FoundMessage,
    KeyPlace,
    KeySource,
    MessagePlace,
    SegmentOrigin,
    SegmentSummary,
    WorkerLostError,
    check_packages,
)
from magnetar.tiered.parquet.supply import Supply, in_frame

_log = logging.getLogger("magnetar.tiered")

PROGRAM: Final = "magnetar.history.history_worker"
IDLE_S: Final = 60.0
"""Seconds after which an idle worker ends, which frees about 100 MB of memory."""
_SOURCES_KEPT: Final = 256
_EXIT_WAIT_S: Final = 5.0
_BUFFER_BYTES: Final = 4 << 20
_AHEAD_DELAY_S: Final = 0.002
"""Seconds of delay before the worker prepares the piece after next. A reader usually requests the next piece,
which is ready, at once; the preparation must not delay that request."""
_TURN_BYTES: Final = 1 << 20
"""Bytes of entries that one turn of the loop takes from the worker; takes a third of a millisecond."""

Answer: TypeAlias = tuple[FrameKind, bytes]
Outcome: TypeAlias = bytes | list[EntryRun]


class OffloadWorker:
    """See `SegmentWorker` in `parquet_history.py`. Used on one event loop."""

    def __init__(self, *, idle_s: float = IDLE_S, niceness: int) -> None:
        """Starts no process yet. `niceness`: its nice value; 0 for a worker on which consumers wait."""
        self._niceness = niceness
        self._idle_s = idle_s
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._handover: Handover | None = None
        self._turn = asyncio.Lock()
        self._expected: Recent[str, tuple[int, int]] = Recent(_SOURCES_KEPT)
        """By source: the place where a sequential reader continues."""
        self._calls: set[asyncio.Task[object]] = set()
        self._idle: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None while no process runs."""
        return None if self._process is None else self._process.pid

    # ------------------------------------------------------------ calls

    async def convert(
        self, runs: AsyncIterator[Sequence[EntryRun]], origin: SegmentOrigin, path: str
    ) -> SegmentSummary:
        """See `SegmentWorker.convert`."""
        request = requests.dump({"path": path, "origin": requests.dump_origin(origin)})
        supply = Supply(runs)
        body = await self._call(FrameKind.CONVERT, request, None, supply)
        return SegmentSummary.from_json(body)

    async def entries(
        self, source: AsyncByteSource, ledger_id: LedgerId, first_entry: int, bytes_max: int
    ) -> list[EntryRun]:
        """See `SegmentWorker.entries`."""
        request = {
            **_described(source),
            "ledger_id": ledger_id,
            "first_entry": first_entry,
            "bytes_max": bytes_max,
        }
        found = await self._outcome(FrameKind.ENTRIES, requests.dump(request), source, None)
        runs = decode_runs(found) if isinstance(found, bytes) else found
        following = (ledger_id, runs[-1].last_entry + 1)
        if self._expected.get(source.name) == (ledger_id, first_entry):
            call_later(_AHEAD_DELAY_S, self._read_ahead, source, following)
        self._expected.put(source.name, following)
        return runs

    def _read_ahead(self, source: AsyncByteSource, following: tuple[int, int]) -> None:
        """Makes the worker prepare the next piece while the caller handles the present one.

        No call waits for it. An error is dropped: it occurs again when the piece is requested.
        """
        if not self._turn.locked() and not self._closed:
            request = {**_described(source), "ledger_id": following[0], "first_entry": following[1]}
            task = self._begin(FrameKind.AHEAD, requests.dump(request), source, None)
            task.add_done_callback(_forget)

    async def position_at(self, source: AsyncByteSource, ledger_id: LedgerId, time_ms: int) -> int | None:
        """See `SegmentWorker.position_at`."""
        request = {**_described(source), "ledger_id": ledger_id, "time_ms": time_ms}
        answer = requests.load(await self._call(FrameKind.POSITION, requests.dump(request), source, None))
        entry: int | None = answer["entry"]
        return entry

    async def lookup(
        self, source: AsyncByteSource, key: bytes, count_max: int, before: MessagePlace | None = None
    ) -> list[FoundMessage]:
        """See `SegmentWorker.lookup`."""
        request = {**_described(source), "key": key.hex(), "count_max": count_max, "before": before}
        answer = requests.load(await self._call(FrameKind.LOOKUP, requests.dump(request), source, None))
        if answer["key_damage"]:
            _log.warning("%s: every row group is searched for a key", answer["key_damage"])
        return requests.load_messages(answer)

    async def merge_keys(self, sources: Sequence[KeySource], path: str) -> int:
        """See `SegmentWorker.merge_keys`."""
        joined = JoinedSource([each.source for each in sources])
        request = {
            "path": path,
            "sources": [{**_described(each.source), "segment": each.segment} for each in sources],
        }
        answer = await self._call(FrameKind.MERGE_KEYS, requests.dump(request), joined, None)
        size: int = requests.load(answer)["size"]
        return size

    async def find_key(self, source: AsyncByteSource, key: bytes) -> tuple[list[KeyPlace], list[KeyPlace]]:
        """See `SegmentWorker.find_key`."""
        request = {**_described(source), "key": key.hex()}
        answer = requests.load(await self._call(FrameKind.FIND_KEY, requests.dump(request), source, None))
        return (
            [KeyPlace(*place) for place in answer["segments"]],
            [KeyPlace(*place) for place in answer["holders"]],
        )

    async def alike(self, parts: Sequence[AsyncByteSource]) -> list[int]:
        """See `SegmentWorker.alike`."""
        request = requests.dump({"sources": [_described(part) for part in parts]})
        answer = requests.load(await self._call(FrameKind.ALIKE, request, JoinedSource(parts), None))
        runs: list[int] = answer["runs"]
        return runs

    async def merge(
        self, parts: Sequence[AsyncByteSource], origin: SegmentOrigin, path: str
    ) -> SegmentSummary:
        """See `SegmentWorker.merge`."""
        request = {
            "path": path,
            "origin": requests.dump_origin(origin),
            "sources": [_described(part) for part in parts],
        }
        body = await self._call(FrameKind.MERGE, requests.dump(request), JoinedSource(parts), None)
        return SegmentSummary.from_json(body)

    async def verify_merged(self, source: AsyncByteSource, parts: Sequence[AsyncByteSource]) -> int:
        """See `SegmentWorker.verify_merged`."""
        sources = (source, *parts)
        request = requests.dump({"sources": [_described(each) for each in sources]})
        answer = await self._call(FrameKind.VERIFY_MERGED, request, JoinedSource(sources), None)
        count: int = requests.load(answer)["entries"]
        return count

    async def verify(self, source: AsyncByteSource, runs: AsyncIterator[Sequence[EntryRun]]) -> int:
        """See `SegmentWorker.verify`."""
        answer = await self._call(FrameKind.VERIFY, requests.dump(_described(source)), source, Supply(runs))
        count: int = requests.load(answer)["entries"]
        return count

    async def close(self) -> None:
        """See `SegmentWorker.close`."""
        self._closed = True
        self._stop_idling()
        self._kill()
        await ended(*self._calls)
        await self._reap()

    # ------------------------------------------------------------ one call

    async def _call(
        self, kind: FrameKind, request: bytes, source: AsyncByteSource | None, supply: Supply | None
    ) -> bytes:
        result = await self._outcome(kind, request, source, supply)
        assert isinstance(result, bytes), "entries for another question"
        return result

    async def _outcome(
        self, kind: FrameKind, request: bytes, source: AsyncByteSource | None, supply: Supply | None
    ) -> Outcome:
        task = self._begin(kind, request, source, supply)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if supply is not None:
                supply.abort()
            # The caller does not wait for its outcome any more.
            task.add_done_callback(_forget)
            raise

    def _begin(
        self, kind: FrameKind, request: bytes, source: AsyncByteSource | None, supply: Supply | None
    ) -> asyncio.Task[Outcome]:
        task = begin(self._converse(kind, request, source, supply))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def _converse(
        self, kind: FrameKind, request: bytes, source: AsyncByteSource | None, supply: Supply | None
    ) -> Outcome:
        async with self._turn:
            self._stop_idling()
            if supply is not None and supply.is_aborted:
                raise WorkerLostError("the call was given up before it began")
            try:
                outcome = await self._serve(kind, request, source, supply)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                status = await self._reap()
                raise WorkerLostError(
                    f"the worker of history has ended with status {status}", status
                ) from error
            finally:
                if not self._closed:
                    self._idle = call_later(self._idle_s, self._end_idle)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _serve(
        self, kind: FrameKind, request: bytes, source: AsyncByteSource | None, supply: Supply | None
    ) -> Outcome | Exception:
        """Sends the request and answers questions until the result or the error arrives, which it returns.

        Raises ConnectionError and IncompleteReadError when the worker has ended. Errors of source and supply
        are returned, because they may have the same types.
        """
        await self._start()
        await self._send(kind, request)
        failure: Exception | None = None
        while True:
            asked, body = await self._receive()
            if asked is FrameKind.WANT_RUNS:
                assert supply is not None
                try:
                    answer = in_frame(await supply.next(), self._handover)
                except Exception as error:  # noqa: BLE001  # returned when the worker has let go of the call
                    failure = error
                    answer = (FrameKind.ABORT, b"")
            elif asked is FrameKind.WANT_BYTES:
                assert source is not None
                try:
                    answer = (FrameKind.BYTES, await source.read_at(*RANGE.unpack(body)))
                except Exception as error:  # noqa: BLE001  # as above
                    failure = error
                    answer = (FrameKind.ABORT, b"")
            elif failure is not None:
                return failure
            elif asked is FrameKind.FAILED:
                return requests.load_error(body)
            elif asked is FrameKind.RUNS_PUT:
                return await self._taken(*SIZE.unpack(body))
            else:
                return body
            await self._send(*answer)

    async def _taken(self, size: int) -> list[EntryRun]:
        """Runs that the worker has put into the shared memory; the loop gets turns between them."""
        assert self._handover is not None
        runs = []
        taken_bytes = 0
        for run in iterate_runs(self._handover.memory, size):
            runs.append(run)
            taken_bytes += run.size_bytes
            if taken_bytes >= _TURN_BYTES:
                taken_bytes = 0
                await yield_loop()
        return runs

    async def _send(self, kind: FrameKind, body: bytes) -> None:
        if self._writer is None:
            raise ConnectionResetError
        self._writer.writelines((HEAD.pack(len(body), kind), body))
        await self._writer.drain()

    async def _receive(self) -> Answer:
        if (reader := self._reader) is None:  # kept: `_reap` may take it away between head and body
            raise ConnectionResetError
        size, kind = HEAD.unpack(await reader.readexactly(HEAD.size))
        return FrameKind(kind), await reader.readexactly(size) if size else b""

    # ------------------------------------------------------------ the process

    async def _start(self) -> None:
        if self._closed:
            raise WorkerLostError("the worker of history was closed")
        if self._process is not None and self._process.poll() is None:
            return
        await self._reap()
        check_packages()
        self._reader, self._writer = await asyncio.open_connection(sock=self._spawn(), limit=_BUFFER_BYTES)

    def _spawn(self) -> socket.socket:
        """Starts the process without waiting for it; returns our end of the connection. Raises OSError."""
        ours, theirs = socket.socketpair()
        self._handover = Handover.create()
        files = (theirs.fileno(), *(() if self._handover is None else (self._handover.file,)))
        numbers = [str(files[0]), str(self._niceness), str(files[1] if len(files) > 1 else -1)]
        # Found where this package was found, whatever the working folder holds.
        package = str(Path(magnetar.__file__).parents[1])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", PROGRAM, *numbers],
                pass_fds=files,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                # Ctrl-C in a terminal must not end it in the middle of a file.
                process_group=0,
            )
        return ours

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def _reap(self) -> int | None:
        """Closes the connection, which ends the process; returns its exit status, None without a process."""
        process, writer = self._process, self._writer
        self._process = self._reader = self._writer = None
        if self._handover is not None:
            self._handover.close()
            self._handover = None
        if writer is not None:
            writer.close()
            with contextlib.suppress(ConnectionError):  # the worker is gone already
                await writer.wait_closed()
        if process is None:
            return None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _EXIT_WAIT_S
        while process.poll() is None:
            if loop.time() > deadline:
                process.kill()
            await pause(0.01)
        return process.returncode

    def _stop_idling(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_idle(self) -> None:
        """Ends the process after `idle_s` seconds without a call."""
        if self._turn.locked():
            return
        task = begin(self._end())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _end(self) -> None:
        async with self._turn:
            await self._reap()


def _described(source: AsyncByteSource) -> dict[str, object]:
    return {"name": source.name, "size": source.size, "path": source.path, "footer": source.footer}


def _forget(task: asyncio.Task[object]) -> None:
    if not task.cancelled():
        task.exception()

"""The queries of one broker: how many run, which callers wait, and what ends a query that takes too much.

    begin     waits for a place, takes a process, asks it          -> topics
    read      says where to read                                   -> head, the first rows
    pieces    the result as it is made
    close     gives the place back; a process that is not done is killed

A place is taken from `begin` until `close`, until the query's time is over, or until its process has too much
memory, whichever is first. A client that does not read cannot hold it for longer.

After a query a process is kept ready, and after further ones a second, until none has come for a minute: it
has loaded the engine already, which takes most of the time of a small query. Tools of Flight SQL ask twice,
for the columns and for the rows.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Final

from magnetar.base.query_bounds import QueryBounds
from magnetar.runtime.fair_places import CrowdedError, FairPlaces
from magnetar.runtime.tasks import TaskGroup, call_later, pause
from magnetar.sql.serving import query_frames as frames
from magnetar.sql.serving.query_process import AnyQueryProcess, start_process
from magnetar.sql.serving.serving_errors import QueriesBusyError, QueryFailedError

_log = logging.getLogger("magnetar.sql")

WAITING_MAX: Final = 4
"""Waiting queries of one owner; a further one is refused."""
WAIT_S: Final = 10.0
"""Seconds for which a query waits for a place before it is refused."""
START_S: Final = 60.0
"""Seconds for a process to start and to load the engine, which does not count as time of the query. It takes
one second on a machine without other work."""
IDLE_S: Final = 60.0
"""Seconds after which a process that is kept ready ends: it has about 100 MiB."""
READY_MAX: Final = 2
"""Most processes that are kept ready."""
LOOK_S: Final = 0.1
"""Seconds between two looks at the memory of a process."""
_END_S: Final = 5.0
"""Seconds for killed processes to end when the broker stops."""
BESIDE_MIB: Final = 256
"""Part of a process's memory that is not the engine's: Python, libraries, rows on their way."""

Start = Callable[[TaskGroup], Awaitable[AnyQueryProcess]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuery:
    """A query of a caller."""

    owner: Hashable
    """That waits in turn with others: a role, or an address."""
    statement: str
    form: str
    rows_max: int | None = None
    """Fewer rows than the broker allows; None: as many."""
    seconds_max: float | None = None
    """Less time than it allows; None: as much."""
    table: str = ""
    """In place of the statement: see `WorkerQuestion`."""
    ids: list[int] = field(default_factory=list)


class QueryPlaces:
    """All queries of a broker."""

    def __init__(self, bounds: QueryBounds, *, start: Start = start_process, idle_s: float = IDLE_S) -> None:
        self.bounds = bounds
        self._places = FairPlaces(bounds.queries_max, waiting_max=WAITING_MAX)
        self._start = start
        self._idle_s = idle_s
        self._tasks = TaskGroup("queries")
        self._running: set[RunningQuery] = set()
        self._spares: list[AnyQueryProcess] = []
        self._idle: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def running(self) -> int:
        """Queries that have a place."""
        return len(self._running)

    async def begin(self, asked: AskedQuery) -> RunningQuery:
        """Waits for a place and has the statement read; the caller closes the result.

        Raises QueriesBusyError, QueryFailedError.
        """
        try:
            async with asyncio.timeout(WAIT_S):
                await self._places.enter(asked.owner)
        except CrowdedError as error:
            raise QueriesBusyError(
                f"{self.bounds.queries_max} queries run, and {WAITING_MAX} of {asked.owner} wait"
            ) from error
        except TimeoutError as error:
            raise QueriesBusyError(
                f"{self.bounds.queries_max} queries run, and none ended within {WAIT_S:g} s"
            ) from error
        if self._closed:
            # It waited, and got the place of a query that ended with the broker.
            self._places.leave()
            raise QueryFailedError(503, "the broker stops")
        query = RunningQuery(self, self._within(asked))
        self._running.add(query)
        try:
            await query.ask()
        except BaseException:
            query.close()
            raise
        return query

    def _within(self, asked: AskedQuery) -> AskedQuery:
        bounds = self.bounds
        rows = bounds.rows_max if asked.rows_max is None else min(asked.rows_max, bounds.rows_max)
        seconds = (
            bounds.seconds_max if asked.seconds_max is None else min(asked.seconds_max, bounds.seconds_max)
        )
        return replace(asked, rows_max=rows, seconds_max=seconds)

    async def process(self) -> AnyQueryProcess:
        """One that is kept ready, or a new one. Raises QueryFailedError."""
        while self._spares:
            spare = self._spares.pop(0)
            if not spare.has_ended:
                return spare
        try:
            return await self._start(self._tasks)
        except OSError as error:
            raise QueryFailedError(503, f"no process for a query can be started: {error}") from error

    def spawn_watch(self, query: RunningQuery) -> None:
        """Looks after the memory of a query's process."""
        self._tasks.spawn(query.watch())

    def ended(self, query: RunningQuery) -> None:
        """Gives the place of a query back; once."""
        if query not in self._running:
            return
        self._running.remove(query)
        self._places.leave()
        if not self._closed:
            self._tasks.spawn(self._make_ready())

    async def _make_ready(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = call_later(self._idle_s, self._let_go)
        if self._is_ready():
            return
        try:
            made = await self._start(self._tasks)
        except OSError as error:
            # The next query tries again, and says so if it cannot.
            _log.warning("no process for queries is kept ready: %s", error)
            return
        if self._closed or self._is_ready():
            # Other queries ended while this one started.
            made.kill()
        else:
            # Those that have ended are dropped, or they would gather.
            self._spares = [*(each for each in self._spares if not each.has_ended), made]

    def _is_ready(self) -> bool:
        """Whether as many processes are kept ready as may be."""
        alive = [each for each in self._spares if not each.has_ended]
        return len(alive) >= min(READY_MAX, self.bounds.queries_max)

    def _let_go(self) -> None:
        spares, self._spares = self._spares, []
        for spare in spares:
            spare.kill()

    async def close(self) -> None:
        """Ends all queries and their processes."""
        self._closed = True
        if self._idle is not None:
            self._idle.cancel()
        self._let_go()
        for query in list(self._running):
            query.end("the broker stops", status=503)
        await self._tasks.drain(_END_S)
        await self._tasks.close()


class RunningQuery:
    """One query that has a place."""

    def __init__(self, places: QueryPlaces, asked: AskedQuery) -> None:
        assert asked.seconds_max is not None, "the bounds of the broker hold"
        assert asked.rows_max is not None, "the bounds of the broker hold"
        self._places = places
        self._bounds = places.bounds
        self._form = asked.form
        self._question = frames.WorkerQuestion(
            statement=asked.statement,
            form=asked.form,
            memory_mib=max(64, self._bounds.memory_mib - BESIDE_MIB),
            spill_mib=self._bounds.spill_mib,
            seconds_max=asked.seconds_max,
            rows_max=asked.rows_max,
            table=asked.table,
            ids=asked.ids,
        )
        self._process: AnyQueryProcess | None = None
        self._killed: QueryFailedError | None = None
        """Why it was ended from here."""
        self._first: tuple[bytes, bytes] | None = None
        """The frame behind the head."""
        self._timer: asyncio.TimerHandle | None = None
        """Ends the query when its time is over; None until its process is ready."""
        self.topics: list[str] = []
        """The topics that the statement reads."""
        self.engine = ""
        """Name and version of the engine; once it reads."""
        self.told: dict[str, object] = {}
        """Rows, seconds and the report; once all rows are there."""

    async def ask(self) -> None:
        """Has the statement read: `topics` are known then. Raises QueryFailedError."""
        process = self._process = await self._places.process()
        if self._killed is not None:
            # The broker stopped while the process started.
            process.kill()
            raise self._killed
        self._places.spawn_watch(self)
        try:
            async with asyncio.timeout(START_S):
                await self._next(frames.READY)
        except TimeoutError as error:
            raise QueryFailedError(503, f"no process was ready for the query within {START_S:g} s") from error
        if self._killed is not None:
            raise self._killed
        self._timer = call_later(self._question.seconds_max, self._expire)
        await process.say(self._question)
        self.topics = json.loads(await self._next(frames.TOPICS))

    async def read(self, reading: frames.WorkerReading) -> None:
        """Has the topics read, and waits for the first rows, so that most errors are known before an answer
        begins. Raises QueryFailedError."""
        assert self._process is not None, "it was asked"
        await self._process.say(reading)
        self.engine = json.loads(await self._next(frames.HEAD))["engine"]
        self._first = await self._any()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The result. Raises QueryFailedError when it ends before it is whole; JSON lines then have a last
        one that says so."""
        frame, line_is_whole = self._first, True
        try:
            while True:
                kind, body = frame or await self._any()
                frame = None
                if kind == frames.END:
                    self.told = json.loads(body)
                    return
                if kind != frames.DATA:
                    raise _unexpected(kind)
                line_is_whole = body.endswith(b"\n")
                yield body
        except QueryFailedError as error:
            if self._form == frames.JSON_LINES:
                # A row that is larger than a frame may have begun.
                begin = b"" if line_is_whole else b"\n"
                yield begin + json.dumps({"error": str(error)}).encode() + b"\n"
            raise

    def close(self) -> None:
        """Ends the query; may be called again."""
        self.end("the query was left", status=503)

    def end(self, reason: str, *, status: int) -> None:
        """Kills the process and gives the place back; what waits for the result gets the reason."""
        if self._timer is not None:
            self._timer.cancel()
        if self._killed is None:
            self._killed = QueryFailedError(status, reason)
        if self._process is not None:
            self._process.kill()
        self._places.ended(self)

    def _expire(self) -> None:
        self.end(f"the query took longer than {self._question.seconds_max:g} s", status=422)

    async def watch(self) -> None:
        """Ends the query when its process has too much memory; returns when that has ended."""
        process = self._process
        assert process is not None, "it was started"
        while not process.has_ended:
            if process.resident_mib() > self._bounds.memory_mib:
                reason = f"the query's process needs more than {self._bounds.memory_mib} MiB of memory"
                self.end(f"{reason}: ask for less at once, or aggregate", status=422)
                return
            await pause(LOOK_S)

    async def _next(self, wanted: bytes) -> bytes:
        kind, body = await self._any()
        if kind != wanted:
            raise _unexpected(kind)
        return body

    async def _any(self) -> tuple[bytes, bytes]:
        """The next frame. Raises QueryFailedError, also for the error that a frame tells."""
        assert self._process is not None, "it was asked"
        try:
            frame = await self._process.frame()
        except ValueError as error:
            raise QueryFailedError(500, str(error)) from error
        if self._killed is not None:
            raise self._killed
        if frame is None:
            raise QueryFailedError(500, "the query's process has ended; the broker's log may say why")
        kind, body = frame
        if kind == frames.ERROR:
            said = json.loads(body)
            raise QueryFailedError(said["status"], said["reason"])
        return frame


def _unexpected(kind: bytes) -> QueryFailedError:
    return QueryFailedError(500, f"the query's process wrote a frame of kind {kind!r}, which was not due")

"""Processes of queries that a test writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

from magnetar.base.query_bounds import QueryBounds
from magnetar.runtime.tasks import TaskGroup
from magnetar.sql.serving import query_frames as frames
from magnetar.sql.serving.query_frames import WorkerQuestion, WorkerReading
from magnetar.sql.serving.query_places import IDLE_S, QueryPlaces

Frame = tuple[bytes, bytes]


def said(kind: bytes, document: object) -> Frame:
    return kind, json.dumps(document).encode()


def result(*pieces: bytes) -> list[Frame]:
    """What a worker writes once it reads."""
    end = said(frames.END, {"rows": len(pieces), "seconds": 0.1, "report": []})
    return [said(frames.HEAD, {"engine": "E 1"}), *((frames.DATA, piece) for piece in pieces), end]


class WrittenProcess:
    """A process whose frames are given. It hangs where there are no more."""

    def __init__(self, written: WrittenProcesses) -> None:
        """`written`: says what it writes, when it is asked."""
        self.heard: list[WorkerQuestion | WorkerReading] = []
        self.mib = 100
        self.killed = False
        self._written = written
        self._waiting: list[Frame | None] = [(frames.READY, b"")] if written.ready else []
        self._came = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        return self.killed

    async def say(self, said: WorkerQuestion | WorkerReading) -> None:
        self.heard.append(said)
        self.write(*(self._written.first() if isinstance(said, WorkerQuestion) else self._written.after))

    def write(self, *written: Frame | None) -> None:
        """None: it has ended by itself."""
        self._waiting += written
        self._came.set()

    async def frame(self) -> Frame | None:
        while not self._waiting:
            if self.killed:
                return None
            self._came.clear()
            await self._came.wait()
        return None if self.killed else self._waiting.pop(0)

    def resident_mib(self) -> int:
        return self.mib

    def kill(self) -> None:
        self.killed = True
        self._came.set()


class WrittenProcesses:
    """Starts processes, and remembers them."""

    def __init__(self, *topics: str, after: Sequence[Frame | None] | None = None) -> None:
        self.topics: Sequence[str] = topics
        self.after: Sequence[Frame | None] = result(b'{"n": 1}\n') if after is None else after
        self.made: list[WrittenProcess] = []
        self.ready = True
        """Whether a process is ready as soon as it starts."""
        self.started: Callable[[], None] = lambda: None
        """Called with each start; may raise OSError."""

    async def start(self, tasks: TaskGroup) -> WrittenProcess:
        self.started()
        self.made.append(WrittenProcess(self))
        return self.made[-1]

    def first(self) -> list[Frame]:
        """What a process writes for a question."""
        return [said(frames.TOPICS, list(self.topics))]

    def places(self, bounds: QueryBounds | None = None, *, idle_s: float = IDLE_S) -> QueryPlaces:
        return QueryPlaces(bounds or QueryBounds(), start=self.start, idle_s=idle_s)

    @property
    def asked(self) -> list[WorkerQuestion]:
        return [each for process in self.made for each in process.heard if isinstance(each, WorkerQuestion)]

    @property
    def read(self) -> list[WorkerReading]:
        return [each for process in self.made for each in process.heard if isinstance(each, WorkerReading)]

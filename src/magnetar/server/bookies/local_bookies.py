"""Starts bookies beside this process, and restarts those that end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from magnetar.base.errors import StartupError, StorageError
from magnetar.metadata.bookkeeper.folder_registry import FolderBookieRegistry
from magnetar.observability.metrics import FamilyText
from magnetar.runtime.tasks import TaskGroup, begin, gathered, pause
from magnetar.server.bookies.bookie_requests import (
    GO,
    HOLD,
    LINE_BYTES_MAX,
    PAUSE,
    READ,
    BookieRequests,
)
from magnetar.server.bookies.local_bookie import LocalBookie, encode

_log = logging.getLogger("magnetar.server")

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 15.0
_LOOK_S: Final = 0.02
_PAUSE_S: Final = 0.2
_PAUSE_S_MAX: Final = 5.0
"""Longest pause in seconds before a bookie is restarted. Pauses double from the first to this one while it
keeps ending."""
_STAYED_S: Final = 10.0


def bookie_names(count: int) -> list[str]:
    """The names of `count` bookies."""
    return [f"bookie-{number}" for number in range(1, count + 1)]


class LocalBookies:
    """Bookies `bookie-1`, `bookie-2`, …, each with its own folder."""

    def __init__(
        self,
        registry: FolderBookieRegistry,
        bookies: Sequence[LocalBookie],
        *,
        password: str = "",
    ) -> None:
        """`password`: what their clients must prove, as the user `local_bookie.USER`; "": nothing."""
        self._password = password
        self._registry = registry
        self._tasks = TaskGroup("local bookies")
        self._processes: dict[str, Process] = {}
        self._requests: dict[str, BookieRequests] = {}
        """To those that run."""
        self._closing = asyncio.Event()
        self._bookies = tuple(bookies)

    async def start(self) -> None:
        """Starts all bookies and waits until they serve; a bookie that lost messages stays closed to clients.
        Raises StartupError."""
        names = frozenset(bookie.name for bookie in self._bookies)
        known = await self._registry.known_bookies()
        if not known <= names:
            folder = self._bookies[0].folder
            raise StartupError(
                f"{folder} has {len(known)} bookies, which hold copies of messages: start with"
                f" --bookies {len(known)} or more"
            )
        for bookie in self._bookies:
            self._tasks.spawn(self._keep(bookie))
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + START_TIMEOUT_S
        while not names <= (alive := (await self._registry.bookies()).all()):
            if loop.time() > deadline_s:
                missing = ", ".join(sorted(names - alive))
                raise StartupError(f"{missing}: did not start; the log says why")
            await pause(_LOOK_S)

    async def _keep(self, bookie: LocalBookie) -> None:
        loop = asyncio.get_running_loop()
        pause_s = _PAUSE_S
        while not self._closing.is_set():
            begun_s = loop.time()
            # A group of its own: Ctrl-C at the terminal is for this process, which needs them to the end.
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "magnetar.server.bookies.local_bookie",
                encode(bookie),
                stdin=PIPE,
                stdout=PIPE,
                limit=LINE_BYTES_MAX,
                start_new_session=True,
            )
            assert process.stdin is not None, "it is a pipe"
            process.stdin.write(f"{self._password}\n".encode())
            self._processes[bookie.name] = process
            if self._closing.is_set():
                _let_go(process)
            requests = self._requests[bookie.name] = BookieRequests(bookie.name, process)
            listening = begin(requests.listen())
            code = await process.wait()
            listening.cancel()
            del self._processes[bookie.name], self._requests[bookie.name]
            if self._closing.is_set():
                return
            if loop.time() - begun_s > _STAYED_S:
                pause_s = _PAUSE_S
            _log.warning("%s ended with code %d and is started again", bookie.name, code)
            await pause(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """A block in which no bookie deletes a ledger. Raises StorageError when a bookie does not answer."""
        held: list[BookieRequests] = []
        try:
            for bookie in self._bookies:
                requests = self._to(bookie)
                held.append(requests)
                await requests.ask(HOLD)
            yield
        finally:
            for requests in held:
                # One that has ended holds nothing, and one that is late reads it later.
                with contextlib.suppress(StorageError):
                    await requests.ask(GO)

    async def ends(self) -> Mapping[str, int]:
        """See `opened_stores.Ends`; call it within `held`. Raises StorageError when a bookie does not
        answer."""
        async with self._paused():
            told = await gathered(self._to(bookie).ends() for bookie in self._bookies)
        return {
            f"bookies/{bookie.name}/segments/{name}": end
            for bookie, ends in zip(self._bookies, told, strict=True)
            for name, end in ends.items()
        }

    @contextlib.asynccontextmanager
    async def _paused(self) -> AsyncIterator[None]:
        """A block in which no bookie reads anything of its clients.

        An add carries the last add confirmed of its ledger. What a bookie reads after this block may confirm
        an entry that another bookie has got since its end was read; what it read before, cannot.
        """
        asked: list[BookieRequests] = []
        try:
            for bookie in self._bookies:
                asked.append(self._to(bookie))
                await asked[-1].ask(PAUSE)
            yield
        finally:
            for requests in asked:
                # One that has ended reads nothing, and one that is late hears it later.
                with contextlib.suppress(StorageError):
                    await requests.ask(READ)

    async def metrics(self) -> dict[str, list[FamilyText] | None]:
        """The metrics of each bookie; None of one that does not answer."""

        async def of(bookie: LocalBookie) -> list[FamilyText] | None:
            try:
                return await self._to(bookie).metrics()
            except StorageError as error:
                _log.info("its metrics are left out of a scrape: %s", error)
                return None

        found = await gathered(of(bookie) for bookie in self._bookies)
        return {bookie.name: each for bookie, each in zip(self._bookies, found, strict=True)}

    def _to(self, bookie: LocalBookie) -> BookieRequests:
        if (requests := self._requests.get(bookie.name)) is None:
            raise StorageError(f"{bookie.name} does not run just now: try again when it is back")
        return requests

    async def close(self) -> None:
        """Ends all bookies and waits for their end."""
        self._closing.set()
        processes = list(self._processes.values())
        for process in processes:
            _let_go(process)
        for process in processes:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                try:
                    async with asyncio.timeout(STOP_TIMEOUT_S):
                        await process.wait()
                except TimeoutError:
                    process.kill()
        await self._tasks.close()


def _let_go(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.close()

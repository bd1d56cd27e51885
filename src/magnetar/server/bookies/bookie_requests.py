"""Requests of a broker to the process of a bookie beside it, over that process's standard input and output.

    NUMBER hold LF      stop deleting ledgers until `go`, or until the process ends
    NUMBER pause LF     read nothing more of clients until `read` or `go`
    NUMBER ends LF      return the segments in use, and the byte up to which each is durable
    NUMBER read LF      read clients again
    NUMBER go LF        delete ledgers again
    NUMBER metrics LF   return the metrics

    NUMBER JSON LF      the answer: for `ends` an object with names of segments and bytes, for `metrics` one
                        with families (`observability/merging.py`), else an empty one; {"error": TEXT} after a
                        failure

Nothing else is written there; the log goes to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

from magnetar.base.errors import StorageError
from magnetar.bookie.segment_store import SegmentStore
from magnetar.observability.merging import as_answer, from_answer
from magnetar.observability.metrics import FamilyText, Registry

_log = logging.getLogger("magnetar.server")

HOLD: Final = "hold"
PAUSE: Final = "pause"
ENDS: Final = "ends"
READ: Final = "read"
GO: Final = "go"
METRICS: Final = "metrics"

LINE_BYTES_MAX: Final = 4 << 20
"""Bytes of the longest answer."""
_ANSWER_S: Final = {HOLD: 10.0, PAUSE: 2.0, ENDS: 2.0, READ: 2.0, GO: 2.0, METRICS: 4.0}
"""Seconds to wait for an answer. Published messages wait from `pause` to `read`."""
_ERROR: Final = "error"
_FAMILIES: Final = "families"

Answer: TypeAlias = dict[str, object]


class BookieRequests:
    """The broker's side."""

    def __init__(self, name: str, process: Process) -> None:
        """`process`: the process of the bookie `name`, with pipes."""
        self._name = name
        self._process = process
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._has_ended = False

    async def listen(self) -> None:
        """Reads answers until the process ends."""
        assert self._process.stdout is not None, "it is a pipe"
        try:
            async for line in self._process.stdout:
                number, _, said = line.partition(b" ")
                try:
                    answer = json.loads(said)
                    asked = self._asked.pop(int(number), None)
                except ValueError:  # a line that is lost costs its caller a timeout, not the process
                    _log.warning("%s sent an invalid answer: %r", self._name, line)
                    continue
                if asked is None or asked.done():
                    continue
                if _ERROR in answer:
                    asked.set_exception(StorageError(f"{self._name}: {answer[_ERROR]}"))
                else:
                    asked.set_result(answer)
        finally:
            self._has_ended = True
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(self._ended())

    def _ended(self) -> StorageError:
        return StorageError(f"{self._name} has ended: try again when it is back")

    async def ask(self, what: str) -> Answer:
        """Sends a request and returns its answer. Raises StorageError when none comes or it is an error."""
        assert self._process.stdin is not None, "it is a pipe"
        if self._has_ended:
            raise self._ended()
        number = next(self._numbers)
        asked: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[number] = asked
        try:
            self._process.stdin.write(f"{number} {what}\n".encode())
            async with asyncio.timeout(_ANSWER_S[what]):
                await asked
            return asked.result()
        except TimeoutError as error:
            late = f"{self._name} did not answer within {_ANSWER_S[what]:.0f} s: try again"
            raise StorageError(late) from error
        finally:
            self._asked.pop(number, None)

    async def ends(self) -> dict[str, int]:
        """What `ends` returns. Raises StorageError."""
        return {name: end for name, end in (await self.ask(ENDS)).items() if isinstance(end, int)}

    async def metrics(self) -> list[FamilyText]:
        """The bookie's metrics. Raises StorageError."""
        return from_answer((await self.ask(METRICS)).get(_FAMILIES))


class BookieAnswers:
    """The bookie's end; does no input or output."""

    def __init__(self, registry: Registry, name: str) -> None:
        """`registry`: the metrics of the bookie `name`."""
        self.stores: Sequence[SegmentStore] = ()
        """Empty until the bookie serves."""
        self.paused: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        """Makes a block in which nothing more of clients is read."""
        self._registry = registry
        self._name = name
        self._pause = contextlib.ExitStack()
        self._rest = b""
        self._held = contextlib.ExitStack()
        self._is_holding = False

    def take(self, data: bytes) -> bytes:
        """Takes the next bytes of input; returns the answers to the requests that they complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        answers = []
        for line in lines:
            number, _, what = line.decode().partition(" ")
            answers.append(f"{number} {json.dumps(self._answer(what))}\n")
        return "".join(answers).encode()

    def _answer(self, what: str) -> Answer:
        if what == METRICS:
            return {_FAMILIES: as_answer(filter(None, self._registry.families(self._name)))}
        if not self.stores:
            return {_ERROR: "it is still starting: try again in a moment"}
        if what == HOLD:
            if not self._is_holding:
                self._is_holding = True
                for store in self.stores:
                    self._held.enter_context(store.still.hold())
            return {}
        if what in (PAUSE, ENDS) and not self._is_holding:
            return {_ERROR: "it was restarted: try again"}
        # A pause begins anew with each request, and ends with the one for it.
        if what != ENDS:
            self._pause.close()
        if what == PAUSE:
            self._pause.enter_context(self.paused())
        elif what == ENDS:
            return dict(store.supply.durable_end for store in self.stores)
        elif what == GO:
            self._is_holding = False
            self._held.close()
        else:
            assert what == READ, f"of one version with the broker: {what!r}"
        return {}

"""Requests of a broker to the process of a bookie beside it, over that process's standard input and output.

    NUMBER hold LF     stop deleting ledgers until `go`, or until the process ends
    NUMBER ends LF     return the segments in use, and the byte up to which each is durable
    NUMBER go LF       delete ledgers again

    NUMBER JSON LF     the answer: for `ends` an object with names of segments and bytes, else an empty one;
                       {"error": TEXT} after a failure

Nothing else is written there; the log goes to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import Final

from magnetar.base.errors import StorageError
from magnetar.bookie.segment_store import SegmentStore

_log = logging.getLogger("magnetar.server")

HOLD: Final = "hold"
ENDS: Final = "ends"
GO: Final = "go"

_ANSWER_S: Final = {HOLD: 10.0, ENDS: 2.0, GO: 2.0}
"""Seconds to wait for an answer. Published messages wait during `ends` too."""
_ERROR: Final = "error"


class BookieRequests:
    """The broker's side."""

    def __init__(self, name: str, process: Process) -> None:
        """`process`: the process of the bookie `name`, with pipes."""
        self._name = name
        self._process = process
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[dict[str, int]]] = {}
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

    async def ask(self, what: str) -> dict[str, int]:
        """Sends a request and returns its answer. Raises StorageError when none comes or it is an error."""
        assert self._process.stdin is not None, "it is a pipe"
        if self._has_ended:
            raise self._ended()
        number = next(self._numbers)
        asked: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
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


class BookieAnswers:
    """The bookie's end; does no input or output."""

    def __init__(self) -> None:
        self.stores: Sequence[SegmentStore] = ()
        """Empty until the bookie serves."""
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

    def _answer(self, what: str) -> dict[str, int] | dict[str, str]:
        if not self.stores:
            return {_ERROR: "it is still starting: try again in a moment"}
        if what == HOLD:
            if not self._is_holding:
                self._is_holding = True
                for store in self.stores:
                    self._held.enter_context(store.still.hold())
            return {}
        if what == ENDS:
            if not self._is_holding:
                return {_ERROR: "it was restarted: try again"}
            return dict(store.supply.durable_end for store in self.stores)
        assert what == GO, f"of one version with the broker: {what!r}"
        self._is_holding = False
        self._held.close()
        return {}

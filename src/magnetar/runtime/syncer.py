"""Makes written bytes durable without blocking the event loop.

fdatasync takes from 0.05 to many milliseconds. On the loop it stops all connections; in a thread its
completion must win the interpreter lock from a busy loop, which takes up to seconds. So a small helper
process shares the file descriptors, syncs, and answers over a socket pair that the loop watches like any
connection (docs/decisions/0002-commit-completion.md has the measurements).

    parent ── SOCK_SEQPACKET ──► helper          helper ──► parent
    'A' slot u32 + one fd        attach          slot u32, errno u32: the sync of `slot` has ended
    'D' slot u32                 detach
    'S' slot u32                 fdatasync

The helper ends when the parent's socket closes, however the parent ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from magnetar.observability.histogram import Histogram

Done = Callable[[OSError | None], None]
"""Called on the event loop when a sync has ended; None means success."""

_PROGRAM: Final = Path(__file__).with_name("syncer_helper.py")
_REQUEST: Final = struct.Struct("<cI")
_ANSWER: Final = struct.Struct("<II")
_EXIT_WAIT_S: Final = 5.0


class Syncer(Protocol):
    """Makes what was written to a file durable."""

    def attach(self, fd: int) -> int:
        """Registers a file, which the caller may close afterwards; returns its slot. Raises OSError."""

    def detach(self, slot: int) -> None:
        """Forgets a file; no sync of it may be under way."""

    def sync(self, slot: int, done: Done) -> None:
        """Starts fdatasync; `done` is called later, never during this call."""

    def watch(self, broken: Callable[[OSError], None]) -> None:
        """`broken` is called once, on the event loop, when no sync can succeed any more, also while none is
        under way."""

    async def close(self) -> None:
        """Stops. Syncs under way fail; `broken` is not called."""


class HelperSyncer:
    """Syncs in a helper process. Must be made and used on the event loop's thread."""

    def __init__(self) -> None:
        """Starts the helper and does not wait for it. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.setblocking(False)
            # A process group of its own: Ctrl-C in a terminal must not end it before the parent has drained.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM), str(other.fileno())],
                pass_fds=(other.fileno(),),
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError:
            self._socket.close()
            raise
        finally:
            other.close()
        self._slots = 0
        self._waiting: dict[int, deque[tuple[Done, float]]] = {}
        self.latency = Histogram()
        """Seconds from the request of a sync until the loop learned of its end."""
        self._broken: OSError | None = None
        self._watcher: Callable[[OSError], None] | None = None
        self._loop.add_reader(self._socket.fileno(), self._readable)

    @property
    def pid(self) -> int:
        """Process id of the helper."""
        return self._process.pid

    def attach(self, fd: int) -> int:
        if self._broken is not None:
            raise self._broken
        slot = self._slots
        self._slots += 1
        socket.send_fds(self._socket, [_REQUEST.pack(b"A", slot)], [fd])
        return slot

    def detach(self, slot: int) -> None:
        assert slot not in self._waiting
        if self._broken is None:
            with contextlib.suppress(OSError):
                # This only releases a descriptor: a helper that has ended has released it already.
                self._socket.send(_REQUEST.pack(b"D", slot))

    def sync(self, slot: int, done: Done) -> None:
        if self._broken is None:
            try:
                self._socket.send(_REQUEST.pack(b"S", slot))
            except OSError as error:
                self._break(f"the sync helper cannot be reached: {error.strerror}")
        if self._broken is not None:
            self._loop.call_soon(done, self._broken)
            return
        self._waiting.setdefault(slot, deque()).append((done, self._loop.time()))

    def watch(self, broken: Callable[[OSError], None]) -> None:
        self._watcher = broken
        if self._broken is not None:
            self._loop.call_soon(broken, self._broken)

    def _readable(self) -> None:
        # One answer, and no look for another, which is hardly ever there: the loop comes back for it.
        if self._broken is not None:
            return
        try:
            answer = self._socket.recv(_ANSWER.size)
        except (BlockingIOError, InterruptedError):  # nothing to read yet
            return
        except OSError as error:
            self._break(f"the sync helper cannot be reached: {error.strerror}")
            return
        if len(answer) != _ANSWER.size:
            self._break("the sync helper has died")
            return
        slot, code = _ANSWER.unpack(answer)
        queue = self._waiting[slot]
        done, began_s = queue.popleft()
        if not queue:
            del self._waiting[slot]
        self.latency.add(self._loop.time() - began_s)
        done(None if code == 0 else OSError(code, f"fdatasync: {os.strerror(code)}"))

    def _break(self, reason: str) -> None:
        self._broken = OSError(reason)
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        waiting = [done for queue in self._waiting.values() for done, _ in queue]
        self._waiting.clear()
        for done in waiting:
            self._loop.call_soon(done, self._broken)
        if self._watcher is not None:
            # After the callers that wait: they know what they lost.
            self._loop.call_soon(self._watcher, self._broken)

    async def close(self) -> None:
        self._watcher = None
        if self._broken is None:
            self._break("the syncer is closed")
        try:
            await asyncio.to_thread(self._process.wait, _EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            # The process hangs in the device; the kernel ends it once the device answers. No caller waits for
            # it.
            self._process.kill()


class InlineSyncer:
    """Syncs on the event loop, which blocks meanwhile: for tests and tools."""

    def __init__(self) -> None:
        self._slots = 0
        self._files: dict[int, int] = {}

    def attach(self, fd: int) -> int:
        slot = self._slots
        self._slots += 1
        self._files[slot] = os.dup(fd)
        return slot

    def detach(self, slot: int) -> None:
        os.close(self._files.pop(slot))

    def sync(self, slot: int, done: Done) -> None:
        error: OSError | None = None
        try:
            self._sync_file(self._files[slot])
        except OSError as failure:
            error = failure
        asyncio.get_running_loop().call_soon(done, error)

    def watch(self, broken: Callable[[OSError], None]) -> None:
        pass

    def _sync_file(self, fd: int) -> None:
        os.fdatasync(fd)

    async def close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()


class NoSyncer:
    """Does not sync: for stores that need not survive the process."""

    def __init__(self) -> None:
        self._slots = 0

    def attach(self, fd: int) -> int:
        slot = self._slots
        self._slots += 1
        return slot

    def detach(self, slot: int) -> None:
        pass

    def sync(self, slot: int, done: Done) -> None:
        asyncio.get_running_loop().call_soon(done, None)

    def watch(self, broken: Callable[[OSError], None]) -> None:
        pass

    async def close(self) -> None:
        pass

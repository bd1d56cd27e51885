"""Accepts connections of a listening socket, within the bounds of an `Entrance`.

The event loop's own servers accept all connections and TLS handshakes until the process has no descriptor
left. This one counts a socket before it makes any object for it, until the socket is closed, and closes
surplus sockets unread. When all places are taken, `make_room` may close an older connection.

An unfinished TLS handshake costs some 40 kB, and the address space of a read buffer of 256 KiB, which later
allocations fill: memory taken by many handshakes at once does not come back. So their number is bounded, and
the address that has most of them loses its oldest one to the newest. A young one stays, and the newest of its
address is refused: else clients that all come at once would push each other out before they finish.

A handshake begins when its first message is there whole (`hello_waits.py`), one in each turn of the loop,
address after address: its dear part, a millisecond, follows at once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar.base.loop_shares import LoopShares, ShareSizes
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.entrance import ADDRESS, FILES, TLS, Entrance
from magnetar.runtime.tasks import soon

if TYPE_CHECKING:
    from magnetar.runtime.hello_waits import HelloWaits

_log = logging.getLogger("magnetar.runtime")

_PER_TURN_MAX: Final = 32
"""Connections accepted per turn of the loop: a few milliseconds of work."""
_TLS_PER_TURN_MAX: Final = 8
"""The same with TLS: the turn begins a handshake, too, and many of a flood are refused."""
_SHARES: Final = ShareSizes(per_read=1, per_turn=1, turn_ms=0.0)
"""No time for a second TLS handshake in a turn: each takes a millisecond, most of it in the turn after its
beginning, where no time can be counted."""
_HANDSHAKES_MAX: Final = 512
"""TLS handshakes under way or waited for. A loop completes about a thousand in a second."""
_LEAST_S: Final = 1.0
"""Seconds for a handshake whose first message came late."""
_YOUNG_S: Final = 1.0
"""Seconds for which a handshake is not ended in favour of another one of its address."""
_NO_FILES_S: Final = 1.0
"""Seconds until the next attempt when the process may open no more files."""
_NO_FILES: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class _Counted(socket.socket):
    """A transport that leaves its entrance when it is closed, or when its descriptor is handed over."""

    entrance: Entrance | None = None
    address = ""
    since_s = 0.0
    """When it was accepted, by the loop's clock."""

    def close(self) -> None:
        self._leave()
        super().close()

    def detach(self) -> int:
        self._leave()
        return super().detach()

    def _leave(self) -> None:
        entrance, self.entrance = self.entrance, None
        if entrance is not None:
            entrance.leave(self.address)


class _Opening:
    """A connection that is being set up: its client's first message is awaited, or its turn, or a task does
    it."""

    __slots__ = ("_begin", "accepted", "protocol", "task")

    def __init__(
        self,
        accepted: _Counted,
        protocol: Callable[[], asyncio.BaseProtocol],
        begin: Callable[[_Opening], None],
    ) -> None:
        self.accepted = accepted
        self.protocol = protocol
        self.task: asyncio.Task[None] | None = None
        self._begin = begin

    def go_on(self) -> None:
        """Its turn has come."""
        self._begin(self)


def _hello_waits(
    came: Callable[[socket.socket], None], ended: Callable[[socket.socket, OSError], None]
) -> HelloWaits:
    # Without TLS it is not loaded.
    from magnetar.runtime.hello_waits import HelloWaits

    return HelloWaits(came, ended)


class _Openings:
    """All of them, the oldest of each address first."""

    __slots__ = ("_by_address", "_by_socket")

    def __init__(self) -> None:
        self._by_socket: dict[socket.socket, _Opening] = {}
        self._by_address: dict[str, dict[_Opening, None]] = {}

    def __len__(self) -> int:
        return len(self._by_socket)

    def __iter__(self) -> Iterator[_Opening]:
        return iter(list(self._by_socket.values()))

    def add(self, opening: _Opening) -> None:
        self._by_socket[opening.accepted] = opening
        self._by_address.setdefault(opening.accepted.address, {})[opening] = None

    def of(self, accepted: socket.socket) -> _Opening:
        return self._by_socket[accepted]

    def remove(self, accepted: socket.socket) -> None:
        """Does nothing for one that was removed before."""
        opening = self._by_socket.pop(accepted, None)
        if opening is None:
            return
        address = opening.accepted.address
        del self._by_address[address][opening]
        if not self._by_address[address]:
            del self._by_address[address]

    def count(self, address: str) -> int:
        return len(self._by_address.get(address, ()))

    def oldest_of_most(self) -> _Opening:
        """The oldest one of the address that has most. There must be one."""
        crowded = max(self._by_address, key=self.count)
        return next(iter(self._by_address[crowded]))


class Acceptor:
    """Accepts from one listening socket, which the caller still owns and closes."""

    def __init__(
        self,
        listener: socket.socket,
        entrance: Entrance,
        protocol: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
        handshake_s: float = 10.0,
        make_room: Callable[[str], bool] | None = None,
    ) -> None:
        """`listener` must not block. `handshake_s` bounds a TLS handshake, in seconds. `make_room` closes a
        connection of the given address ("" for any address) to free its place, and returns whether there was
        one."""
        self._listener = listener
        self._entrance = entrance
        self._protocol = protocol
        self._tls = tls
        self._handshake_s = handshake_s
        self._make_room = make_room
        self._loop = asyncio.get_running_loop()
        self._opening = _Openings()
        self._hellos = None if tls is None else _hello_waits(self._greeted, self._left)
        self._turns = LoopShares(soon, SystemClock().monotonic_ms, _SHARES)
        self._ending: set[asyncio.Task[None]] = set()
        """Those that were ended and go in the next turns of the loop."""
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Stops accepting; drops connections that are being set up."""
        if self._closed:
            return
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        else:
            self._loop.remove_reader(self._listener.fileno())
        for opening in self._opening:
            self._end(opening, "the port is closed")
        if self._hellos is not None:
            self._hellos.close()

    def take(self, accepted: socket.socket, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        """Serves a socket that another process accepted, as if it had been accepted here."""
        try:
            address = accepted.getpeername()[0]
        except OSError:
            # The client went away on the way.
            accepted.close()
            return
        self._enter(accepted, address, protocol)

    async def wait_closed(self) -> None:
        """Returns when no connection is being set up any more."""
        tasks = [opening.task for opening in self._opening if opening.task is not None]
        if unfinished := [*tasks, *self._ending]:
            await asyncio.wait(unfinished)

    def _accept(self) -> None:
        for _ in range(_PER_TURN_MAX if self._tls is None else _TLS_PER_TURN_MAX):
            try:
                accepted, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                # The queue is empty, or the client went away while it waited.
                return
            except OSError as error:
                if error.errno not in _NO_FILES:
                    raise
                self._wait_for_files(error)
                return
            self._enter(accepted, peer[0], self._protocol)

    def _enter(
        self, accepted: socket.socket, address: str, protocol: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        # A connection that is closed to free its place goes in the next turn of the loop: until then there is
        # one more than places.
        obstacle = self._entrance.obstacle(address)
        makes_room = False
        if obstacle and self._make_room is not None:
            makes_room = self._make_room(address if obstacle == ADDRESS else "")
        reason = self._entrance.enter(address, beyond=makes_room)
        if reason:
            accepted.close()
            _log.warning(
                "%s: connection refused before a byte was read: all places of its %s are taken (%d "
                "connections)",
                address,
                f"{self._entrance.kind} {reason}" if reason != ADDRESS else "address's places",
                len(self._entrance),
            )
            return
        counted = _Counted(fileno=accepted.detach())
        counted.entrance, counted.address, counted.since_s = self._entrance, address, self._loop.time()
        if self._tls is not None and len(self._opening) >= _HANDSHAKES_MAX and not self._end_one(counted):
            self._failed(counted, ConnectionAbortedError("too many TLS handshakes of its address"))
            return
        counted.setblocking(False)
        opening = _Opening(counted, protocol, self._begin)
        self._opening.add(opening)
        if self._hellos is None:
            self._begin(opening)
        else:
            self._hellos.wait(counted, self._handshake_s)

    def _end_one(self, newest: _Counted) -> bool:
        """Ends the oldest handshake of the address that has most of them; False: the newest is of an address
        that has as many, and the oldest is young."""
        oldest = self._opening.oldest_of_most()
        as_many = self._opening.count(newest.address) == self._opening.count(oldest.accepted.address)
        if as_many and newest.since_s - oldest.accepted.since_s < _YOUNG_S:
            return False
        self._end(oldest, "others wait for its place")
        return True

    def _end(self, opening: _Opening, why: str) -> None:
        """Ends a connection that is being set up."""
        # One with a task is cancelled in the next turn, and many are accepted in this one: each must end
        # another one.
        self._opening.remove(opening.accepted)
        if opening.task is not None:
            self._ending.add(opening.task)
            opening.task.cancel()
            return
        assert self._hellos is not None, "without TLS it has a task"
        self._hellos.forget(opening.accepted)
        self._turns.forget(opening.accepted.address, opening)
        self._failed(opening.accepted, ConnectionAbortedError(why))

    def _greeted(self, accepted: socket.socket) -> None:
        opening = self._opening.of(accepted)
        self._turns.wait(opening.accepted.address, opening)

    def _left(self, accepted: socket.socket, error: OSError) -> None:
        opening = self._opening.of(accepted)
        self._opening.remove(accepted)
        self._failed(opening.accepted, error)

    def _begin(self, opening: _Opening) -> None:
        counted = opening.accepted
        if self._hellos is not None and self._hellos.has_gone(counted):
            # It waited for its turn, and did not wait for the answer.
            self._left(counted, ConnectionResetError("closed before its TLS handshake"))
            return
        opening.task = self._loop.create_task(self._open(counted, opening.protocol))
        opening.task.add_done_callback(partial(self._opened, counted))

    async def _open(self, counted: _Counted, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(protocol, counted)
            else:
                left_s = counted.since_s + self._handshake_s - self._loop.time()
                await self._loop.connect_accepted_socket(
                    protocol, counted, ssl=self._tls, ssl_handshake_timeout=max(_LEAST_S, left_s)
                )
        except OSError as error:
            self._failed(counted, error)

    def _failed(self, counted: _Counted, error: BaseException) -> None:
        if self._tls is not None:
            self._entrance.refused[TLS] += 1
        _log.info("%s: the connection could not be set up: %s", counted.address, repr(error))
        counted.close()

    def _opened(self, counted: _Counted, task: asyncio.Task[None]) -> None:
        self._opening.remove(counted)
        self._ending.discard(task)
        if task.cancelled():
            # Perhaps before it began: so it cannot do this itself.
            self._failed(counted, asyncio.CancelledError("others wait for its place"))
        elif (error := task.exception()) is not None:
            _log.error("opening a connection failed", exc_info=error)

    def _wait_for_files(self, error: OSError) -> None:
        self._entrance.refused[FILES] += 1
        _log.error("no connection can be accepted: %s; trying again in a second", error)
        self._loop.remove_reader(self._listener.fileno())
        self._pause = self._loop.call_later(_NO_FILES_S, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

"""Hands an open socket to another process of this machine, with the bytes that were read from it.

Each hand-over is one connection to the UNIX socket of the other process (SOCK_SEQPACKET), with one message:
the bytes, and the descriptor beside them (SCM_RIGHTS). The kernel makes the connection before the receiver
accepts it, so a sender waits only while the receiver's queue is full. When the receiver dies, what waits in
its queue is closed with it, and the peer of each socket sees its connection end.

Source: unix(7), cmsg(3).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from magnetar.runtime.tasks import call_later, pause

DATA_BYTES_MAX: Final = 96 << 10
"""Bytes that go with a socket: more than a CONNECT may have, and less than a UNIX socket sends at once."""
_BACKLOG: Final = 1024
"""Hand-overs that wait for the receiver; as many as connections wait in the queue of a port."""
_PER_TURN_MAX: Final = 32
"""Hand-overs received per turn of the loop."""
_LINKS_MAX: Final = 256
"""Connections whose message has not arrived; a sender writes it as soon as it is connected."""
_AGAIN_S: Final = 0.01
"""Between two attempts while the receiver's queue is full."""
_WAIT_S: Final = 5.0
"""Seconds for which a sender waits for a place in the queue."""

_NO_FILES_S: Final = 0.1
"""Seconds between two looks for a free descriptor."""

Taken = Callable[[socket.socket, bytes], None]
"""Takes over a socket, with the bytes that were read from it."""


async def hand_over(place: Path, descriptor: Callable[[], int], data: bytes) -> None:
    """Gives an open socket to the process that receives at `place`; the caller still has its own descriptor.

    `descriptor`: asked when there is a place, as the socket may be closed meanwhile: it raises OSError
    then. Raises OSError when that process is gone or takes nothing for 5 s; nothing was handed over then.
    """
    assert len(data) <= DATA_BYTES_MAX, "more than one message holds"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as link:
        async with asyncio.timeout(_WAIT_S):
            while not _connected(link, place):
                await pause(_AGAIN_S)
        socket.send_fds(link, [data], [descriptor()])


def _connected(link: socket.socket, place: Path) -> bool:
    """False: the queue is full. Raises OSError."""
    try:
        link.connect(str(place))
    except BlockingIOError:
        # The caller tries again.
        return False
    return True


class SocketReceiver:
    """Receives at a place in the file system, which only this user can reach."""

    def __init__(self, place: Path, taken: Taken) -> None:
        """`place`: its folder exists; what a former process left there is replaced. Raises OSError."""
        self._place = place
        self._taken = taken
        self._loop = asyncio.get_running_loop()
        self._links: set[socket.socket] = set()
        self._pause: asyncio.TimerHandle | None = None
        """Until descriptors are looked for again; None: there were some."""
        place.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(str(place))
            place.chmod(0o600)
            self._listener.listen(_BACKLOG)
        except OSError:
            self._listener.close()
            raise
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Receives nothing more; what waits is closed."""
        if self._listener.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        self._place.unlink(missing_ok=True)
        for link in list(self._links):
            self._drop(link)

    def _accept(self) -> None:
        for _ in range(_PER_TURN_MAX):
            try:
                link, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                # The queue is empty, or the sender has died while it waited.
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    # One is free when any connection ends. Until then the loop would call again at once.
                    self._loop.remove_reader(self._listener.fileno())
                    self._pause = call_later(_NO_FILES_S, self._listen_again)
                    return
                raise
            link.setblocking(False)
            if not self._receive(link):
                if len(self._links) >= _LINKS_MAX:
                    self._drop(next(iter(self._links)))
                self._links.add(link)
                self._loop.add_reader(link.fileno(), self._later, link)

    def _listen_again(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _later(self, link: socket.socket) -> None:
        if self._receive(link):
            self._drop(link)

    def _drop(self, link: socket.socket) -> None:
        if link in self._links:
            self._links.discard(link)
            self._loop.remove_reader(link.fileno())
        link.close()

    def _receive(self, link: socket.socket) -> bool:
        """Whether there is nothing more to come on the link, which is closed then unless it is waited for."""
        try:
            data, descriptors, flags, _ = socket.recv_fds(link, DATA_BYTES_MAX, 1)
        except BlockingIOError:
            # The message is on its way: the loop says when it is there.
            return False
        except OSError:
            # The sender has died; the socket that it had is closed with it.
            data, descriptors, flags = b"", [], 0
        if link not in self._links:
            link.close()
        whole = not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
        for descriptor in descriptors:
            if whole:
                self._taken(socket.socket(fileno=descriptor), data)
            else:
                with contextlib.suppress(OSError):  # its peer sees the end of the connection
                    os.close(descriptor)
        return True

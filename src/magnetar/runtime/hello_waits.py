"""Waits until the first message of a TLS handshake has arrived whole.

A handshake that has begun has a read buffer of 256 KiB and costs a look at each byte that comes. A client
that says nothing, or sends its first message byte by byte, costs a descriptor here: the bytes stay with the
operating system, which wakes the loop when as many are there as were asked for (SO_RCVLOWAT).

All sockets are in one selector, of which the loop sees one descriptor. uvloop gives up a reader of its own
without a word when its client resets the connection.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import socket
from collections.abc import Callable
from typing import Protocol, cast

from magnetar.runtime.client_hello import HEADER_BYTES, HELLO_SEEN_MAX, hello_wants


class _Selector(Protocol):
    """A selector of the operating system's own: it is a descriptor itself."""

    def fileno(self) -> int: ...


class HelloWaits:
    """Sockets whose clients have not sent a whole first message."""

    def __init__(
        self, came: Callable[[socket.socket], None], ended: Callable[[socket.socket, OSError], None]
    ) -> None:
        """`came`: the first message of this socket is there, or something else that TLS is to refuse.
        `ended`: the client went away, or the time is over. Both get a socket that is not waited for."""
        self._came = came
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[socket.socket, tuple[int, asyncio.TimerHandle]] = {}
        """How many bytes were asked for, and the end of the wait."""
        self._selector = selectors.DefaultSelector()
        self._descriptor = cast(_Selector, self._selector).fileno()
        self._loop.add_reader(self._descriptor, self._look)

    def __len__(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Waits for none any more; the sockets stay as they are."""
        for accepted in list(self._waiting):
            self.forget(accepted)
        self._loop.remove_reader(self._descriptor)
        self._selector.close()

    def wait(self, accepted: socket.socket, seconds: float) -> None:
        """Calls one of the two back, within the given seconds, unless `forget` is called before. The socket
        must not block; it is the caller's."""
        timer = self._loop.call_later(seconds, self._too_late, accepted, seconds)
        self._waiting[accepted] = HEADER_BYTES, timer
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, HEADER_BYTES)
        self._selector.register(accepted, selectors.EVENT_READ)

    @staticmethod
    def has_gone(accepted: socket.socket) -> bool:
        """Whether the client has closed or reset the connection, behind bytes that are unread, too."""
        gone = select.poll()
        # Where the system does not tell of a client that writes no more, TLS finds out.
        gone.register(accepted, getattr(select, "POLLRDHUP", 0))
        return bool(gone.poll(0))

    def forget(self, accepted: socket.socket) -> None:
        """The socket is not waited for any more; to be called before it is closed."""
        waiting = self._waiting.pop(accepted, None)
        if waiting is not None:
            waiting[1].cancel()
            self._selector.unregister(accepted)

    def _look(self) -> None:
        for key, _ in self._selector.select(0):
            accepted = key.fileobj
            # One that was looked at before may have ended others.
            if isinstance(accepted, socket.socket) and accepted in self._waiting:
                self._look_at(accepted)

    def _look_at(self, accepted: socket.socket) -> None:
        asked, timer = self._waiting[accepted]
        try:
            seen = accepted.recv(HELLO_SEEN_MAX, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return  # nothing has come after all: the selector tells when something has
        except OSError as error:
            self.forget(accepted)
            self._ended(accepted, error)
            return
        wants = hello_wants(seen)
        # Woken with less than was asked for: no more is going to come, or the system knows no such mark and
        # would wake the loop again and again.
        if wants > len(seen) >= asked:
            self._waiting[accepted] = wants, timer
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wants)
            return
        self.forget(accepted)
        if not seen:
            self._ended(accepted, ConnectionResetError("closed before its TLS handshake"))
            return
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self._came(accepted)

    def _too_late(self, accepted: socket.socket, seconds: float) -> None:
        self.forget(accepted)
        self._ended(accepted, TimeoutError(f"no TLS handshake within {seconds:g} s"))

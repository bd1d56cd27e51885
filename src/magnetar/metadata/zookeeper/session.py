"""A session with ZooKeeper, without sockets and clocks: bytes in, events out.

A session outlives connections. Each connection begins with one frame that opens or resumes the session. After
that, requests are answered in the order in which they were sent, with watch events in between. An event that
a request caused arrives before the answer to that request.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from magnetar.metadata.zookeeper.jute import JuteError, JuteReader
from magnetar.metadata.zookeeper.protocol import (
    EVENT_XID,
    PING_XID,
    Event,
    Opcode,
    pack_connect,
    pack_request,
)

FRAME_BYTES_MAX: Final = 64 << 20
"""Bytes of the longest frame that is accepted. ZooKeeper's servers send at most 1 MiB by default."""

_XID_MAX: Final = (1 << 31) - 1
_NO_PASSWORD: Final = bytes(16)


@dataclass(frozen=True, slots=True)
class Joined:
    """The connection serves the session now."""

    resumed: bool
    """True: the session continues; False: it is a new one."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The server has ended the session; the connection cannot be used any more."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to the oldest unanswered request."""

    error: int
    reader: JuteReader


SessionOutput = Joined | Expired | Reply | Event


class ZooKeeperSession:
    """The client's side of a session."""

    def __init__(self, timeout_ms: int) -> None:
        """`timeout_ms`: milliseconds that the session lasts without contact; the server may change them."""
        self._asked_timeout_ms = timeout_ms
        self.timeout_ms = timeout_ms
        """Milliseconds that the server granted."""
        self.session_id = 0
        self._password = _NO_PASSWORD
        self._last_zxid = 0
        self._buffer = bytearray()
        self._joined = False
        self._xid = 0
        self._waiting: deque[int] = deque()

    def connect(self) -> bytes:
        """The first bytes of a new connection; requests on the last one get no answer any more."""
        self._buffer.clear()
        self._waiting.clear()
        self._joined = False
        return pack_connect(self._last_zxid, self._asked_timeout_ms, self.session_id, self._password)

    def request(self, opcode: Opcode, record: bytes) -> bytes:
        """The bytes of a request; `receive` returns its answer later."""
        assert self._joined
        self._xid = self._xid % _XID_MAX + 1
        self._waiting.append(self._xid)
        return pack_request(self._xid, opcode, record)

    def ping(self) -> bytes:
        """The bytes that keep the session alive; `receive` does not return their answer."""
        return pack_request(PING_XID, Opcode.PING, b"")

    def receive(self, data: bytes) -> list[SessionOutput]:
        """The answers and events in the server's bytes. Raises JuteError; the caller then closes the
        connection."""
        self._buffer += data
        outputs: list[SessionOutput] = []
        at = 0
        while len(self._buffer) - at >= 4:
            length = int.from_bytes(self._buffer[at : at + 4], "big")
            if length > FRAME_BYTES_MAX:
                raise JuteError(f"a frame of {length} bytes")
            if len(self._buffer) - at - 4 < length:
                break
            with memoryview(self._buffer) as view:  # an answer may have megabytes: copied once
                reader = JuteReader(bytes(view[at + 4 : at + 4 + length]))
            at += 4 + length
            output = self._frame(reader) if self._joined else self._greeting(reader)
            if output is not None:
                outputs.append(output)
        del self._buffer[:at]
        return outputs

    def _greeting(self, reader: JuteReader) -> SessionOutput:
        _, timeout_ms, session_id = reader.int32(), reader.int32(), reader.int64()
        password = reader.buffer()
        if timeout_ms <= 0 or session_id == 0:
            self.session_id = 0
            self._password = _NO_PASSWORD
            return Expired()
        resumed = session_id == self.session_id
        self.session_id, self._password, self.timeout_ms = session_id, password, timeout_ms
        self._joined = True
        return Joined(resumed)

    def _frame(self, reader: JuteReader) -> SessionOutput | None:
        xid, zxid, error = reader.int32(), reader.int64(), reader.int32()
        if xid == PING_XID:
            return None
        if xid == EVENT_XID:
            kind, _, path = reader.int32(), reader.int32(), reader.string()
            return Event(kind, path)
        if not self._waiting or self._waiting.popleft() != xid:
            raise JuteError(f"an answer to request {xid}, which is not its turn")
        if zxid > 0:
            self._last_zxid = zxid
        return Reply(error, reader)

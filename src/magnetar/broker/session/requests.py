"""Requests of one connection: some running, the others waiting, in order of arrival (pure).

A client may send requests for hours and never read an answer. The memory that it can occupy is bounded on
both sides: few requests run at once, so few answers can follow after the connection's output is full; the
session begins no other before the output is below its bound; and a long line stops the reading. Requests
whose answers may be very large, like lists of topics, run one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, Protocol

from magnetar.base.ids import RequestId
from magnetar.wire import pulsar_pb2 as pb

RUNNING_MAX: Final = 32
"""Requests in work at once: enough to keep storage busy, few enough for their answers to be held."""
RUNNING_BYTES_MAX: Final = 1 << 20
"""Bytes of requests in work; a larger one is in work alone."""
WAITING_MAX: Final = 1_000
"""Waiting requests at which reading stops; those of one read are added to it."""
WAITING_BYTES_MAX: Final = 1 << 20
"""Their bytes; one frame of the largest size is added to it."""

Refusal = Callable[[pb.ServerError, str], bytes]
"""Makes the frame that answers a failed request of a code and a text."""


class NumberedCommand(Protocol):
    """A command that is answered by its number."""

    @property
    def request_id(self) -> RequestId: ...
    def ByteSize(self) -> int: ...  # noqa: N802  # protobuf's name


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One request."""

    request_id: RequestId
    work: Coroutine[object, object, None]
    refuse: Refusal
    size_bytes: int
    large: bool
    """Whether its answer may be large."""


class RequestLine:
    """The requests of one connection."""

    __slots__ = ("_crowded", "_large_running", "_running", "_running_bytes", "_waiting", "_waiting_bytes")

    def __init__(self) -> None:
        # Not a deque, which takes 700 bytes where a connection takes 4,000; the line is short enough.
        self._waiting: list[Request] = []
        self._waiting_bytes = 0
        self._running = 0
        self._running_bytes = 0
        self._large_running = False
        self._crowded = False

    def __len__(self) -> int:
        """Requests in line."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests in work."""
        return self._running

    @property
    def crowded(self) -> bool:
        """Whether reading must stop: from a full line on, until half of it is done."""
        return self._crowded

    def _measure(self) -> None:
        """The line has changed: it may be crowded now, or not any more."""
        part = 2 if self._crowded else 1
        is_long = len(self._waiting) > WAITING_MAX // part
        self._crowded = is_long or self._waiting_bytes > WAITING_BYTES_MAX // part

    def add(self, request: Request) -> None:
        """Puts a request at the end of the line."""
        self._waiting.append(request)
        self._waiting_bytes += request.size_bytes
        self._measure()

    @property
    def is_next(self) -> bool:
        """Whether there is a waiting request that need not wait for the running ones."""
        if not self._waiting or self._running >= RUNNING_MAX:
            return False
        first = self._waiting[0]
        if first.large and self._large_running:
            return False
        return not self._running or self._running_bytes + first.size_bytes <= RUNNING_BYTES_MAX

    def begin(self) -> Request | None:
        """The first in line, which is in work from now on; None when it must wait."""
        if not self.is_next:
            return None
        first = self._waiting.pop(0)
        self._waiting_bytes -= first.size_bytes
        self._measure()
        self._running += 1
        self._running_bytes += first.size_bytes
        self._large_running |= first.large
        return first

    def end(self, request: Request) -> None:
        """A request that was in work has been answered."""
        self._running -= 1
        self._running_bytes -= request.size_bytes
        if request.large:
            self._large_running = False

    def clear(self) -> None:
        """The client is gone: no answer is needed any more."""
        for request in self._waiting:
            request.work.close()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._measure()

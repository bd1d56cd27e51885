"""Requests of one connection: some running, the others waiting, in order of arrival (pure).

A client may send requests for hours and never read an answer. The memory that it can occupy is bounded on
both sides: few requests run at once, so few answers can follow after the connection's output is full; the
session begins no other before the output is below its bound; and a long line stops the reading. Requests
whose answers may be very large, like lists of topics, run one at a time. What waits on all connections is
bounded too, by `RequestBudget`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from magnetar.base.ids import RequestId
from magnetar.observability.metrics import Exposition
from magnetar.wire import pulsar_pb2 as pb

RUNNING_MAX: Final = 32
"""Requests in work at once: enough to keep storage busy, few enough for their answers to be held."""
RUNNING_BYTES_MAX: Final = 1 << 20
"""Bytes of requests in work; a larger one is in work alone."""
WAITING_MAX: Final = 1_000
"""Waiting requests at which reading stops; those of one read are added to it."""
WAITING_BYTES_MAX: Final = 1 << 20
"""Their bytes; one frame of the largest size is added to it."""
ALL_BYTES_MAX: Final = 128 << 20
"""The memory that the waiting requests of all connections may hold together."""
REQUEST_BYTES: Final = 2_048
"""What a waiting request takes beside its bytes: its command, its coroutine and its place."""
SHARES: Final = 32
"""A connection may have this part of what is free waiting: 4 MiB when all is, more than its own bound."""

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


class RequestBudget:
    """What the requests that wait hold, over all connections.

    A connection may have a share of what is free waiting: the less is free, the smaller each share, as of
    output (`outputs.py`). One that has nothing waiting is always read. So the bytes stay below
        ALL_BYTES_MAX + connections x one read of commands
    The client that has most waiting pays: it is not read before half of its line is done. Nothing is lost,
    and no connection has to be woken, because one that is not read has requests of its own in line.
    """

    __slots__ = ("bytes_max", "used")

    def __init__(self, bytes_max: int = ALL_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        """Bytes that waiting requests hold."""

    def allows(self, waiting_bytes: int) -> bool:
        """Whether a connection whose waiting requests hold this much may have more."""
        return not waiting_bytes or waiting_bytes * SHARES < self.bytes_max - self.used

    def collect_metrics(self, out: Exposition) -> Iterable[None]:
        """A collector of `/metrics`."""
        out.gauge(
            "magnetar_waiting_requests_bytes", "Memory of clients' requests that wait to begin.", self.used
        )
        out.gauge(
            "magnetar_waiting_requests_bytes_max",
            "Budget of magnetar_waiting_requests_bytes; when little of it is free, clients with many waiting "
            "requests are not read.",
            self.bytes_max,
        )
        return ()


class RequestLine:
    """The requests of one connection."""

    __slots__ = (
        "_budget",
        "_crowded",
        "_large_running",
        "_running",
        "_running_bytes",
        "_waiting",
        "_waiting_bytes",
    )

    def __init__(self, budget: RequestBudget) -> None:
        self._budget = budget
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
        is_large = self._waiting_bytes > WAITING_BYTES_MAX // part
        self._crowded = is_long or is_large or not self._budget.allows(part * self._held_bytes)

    @property
    def _held_bytes(self) -> int:
        """What the line takes of the memory."""
        return self._waiting_bytes + REQUEST_BYTES * len(self._waiting)

    def add(self, request: Request) -> None:
        """Puts a request at the end of the line."""
        self._waiting.append(request)
        self._waiting_bytes += request.size_bytes
        self._budget.used += request.size_bytes + REQUEST_BYTES
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
        self._budget.used -= first.size_bytes + REQUEST_BYTES
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
        self._budget.used -= self._held_bytes
        for request in self._waiting:
            request.work.close()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._measure()

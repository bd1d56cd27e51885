"""Closed loop: as many messages as the broker acknowledges."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Final

from bench.meter import Meter, Moment, no_garbage_collection
from bench.publisher import Publisher
from bench.scan import BrokerAnswerError

WAIT_S: Final = 0.05
STALL_S: Final = 30.0


class Loop:
    """Moves all publishers forward in one thread."""

    def __init__(self, publishers: Sequence[Publisher]) -> None:
        self._epoll = select.epoll()
        self._publishers = {publisher.socket.fileno(): publisher for publisher in publishers}
        self._blocked: set[int] = set()
        for fd in self._publishers:
            self._epoll.register(fd, select.EPOLLIN)

    def turn(self) -> None:
        """Send what may be sent, wait for anything to arrive, read it."""
        for fd, publisher in self._publishers.items():
            blocked = not publisher.pump()
            if blocked != (fd in self._blocked):
                self._blocked ^= {fd}
                self._epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if blocked else 0))
        for fd, events in self._epoll.poll(WAIT_S):
            if events & ~select.EPOLLOUT:
                self._publishers[fd].receive()

    def close(self) -> None:
        """Close all sockets."""
        self._epoll.close()
        for publisher in self._publishers.values():
            publisher.socket.close()


def publish_for(
    publishers: Sequence[Publisher], meter: Meter, *, warm_up_s: float, seconds: float
) -> dict[str, float]:
    """Publish for warm-up and measurement; count what was acknowledged in the measured time; then drain.

    Raises BrokerAnswerError when a receipt is wrong or missing 30 s after the last send.
    """
    loop = Loop(publishers)
    try:
        with no_garbage_collection():
            _run_until(loop, time.perf_counter() + warm_up_s)
            start, acknowledged_before = meter.now(), _acknowledged(publishers)
            _run_until(loop, start.wall_s + seconds)
            end, acknowledged_after = meter.now(), _acknowledged(publishers)
            for publisher in publishers:
                publisher.stop()
            _drain(loop, publishers)
    finally:
        loop.close()
    template = publishers[0].template
    entries = acknowledged_after - acknowledged_before
    return meter.metrics(
        start,
        end,
        messages=entries * template.messages_per_entry,
        payload_bytes=entries * template.payload_bytes,
    )


def publish_all(
    publishers: Sequence[Publisher], meter: Meter, *, seconds_max: float | None = None
) -> tuple[Moment, Moment]:
    """Publish until every publisher has sent its `entries_max`, or time is up, and has all receipts."""
    loop = Loop(publishers)
    try:
        with no_garbage_collection():
            start = meter.now()
            if seconds_max is not None:
                end_s = start.wall_s + seconds_max
                while time.perf_counter() < end_s and not all(publisher.done for publisher in publishers):
                    loop.turn()
                for publisher in publishers:
                    publisher.stop()
            _drain(loop, publishers)
            return start, meter.now()
    finally:
        loop.close()


def _run_until(loop: Loop, end_s: float) -> None:
    while time.perf_counter() < end_s:
        loop.turn()


def _acknowledged(publishers: Sequence[Publisher]) -> int:
    return sum(publisher.entries_acknowledged for publisher in publishers)


def _drain(loop: Loop, publishers: Sequence[Publisher]) -> None:
    acknowledged = -1
    progress_s = time.perf_counter()
    while not all(publisher.done for publisher in publishers):
        loop.turn()
        if acknowledged != (acknowledged := _acknowledged(publishers)):
            progress_s = time.perf_counter()
        elif time.perf_counter() - progress_s > STALL_S:
            raise BrokerAnswerError(
                f"no receipt for {STALL_S:.0f} s; {acknowledged} entries are acknowledged"
            )

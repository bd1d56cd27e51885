"""Open loop: messages leave at their intended times, whatever the broker does; latency counts from then."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from bench import frames as f
from bench.connection import Inbox
from bench.driver import Driver, Lane
from bench.histogram import Latencies, due_count, intended_ns
from bench.meter import Meter, no_garbage_collection
from bench.payload import now_ms

BLOCK_FRAMES: Final = 256
LEAD_S: Final = 0.2
DRAIN_S: Final = 10.0
SUSTAINED_SHARE: Final = 0.97
SPIN_SHARE: Final = 0.97
"""The generator never sleeps, so a smaller share of its core means that others took the rest."""
E2E_QUEUE: Final = 10_000


@dataclass(frozen=True, slots=True)
class LatencyRun:
    """What one run gave."""

    metrics: dict[str, float]
    histograms: dict[str, str]
    """HdrHistograms by name, encoded."""
    notes: list[str]


class Arrivals:
    """When each entry arrived, by its number; filled in order."""

    def __init__(self, count: int) -> None:
        self.times_ns: npt.NDArray[np.int64] = np.zeros(count, dtype=np.int64)
        self.count: int = 0

    def until(self, count: int, now_ns: int) -> None:
        """All entries below `count` that had not arrived yet arrived now."""
        self.times_ns[self.count : count] = now_ns
        self.count = count

    def latencies(self, due: npt.NDArray[np.int64], first: int) -> npt.NDArray[np.int64]:
        """Waiting times of all messages in the entries from `first` on that did arrive.

        `due`: one row an entry, one column for each of its messages.
        """
        return (self.times_ns[first : self.count, None] - due[first : self.count]).reshape(-1)


class OpenLoopPublisher:
    """Sends the entries up to the number it is told.

    Block k of 256 entries lies in buffer k mod 2: while one leaves, the other is numbered as soon as its old
    content is with the kernel, at a moment when nothing is due, so that numbering delays no entry.
    """

    def __init__(self, lane: Lane) -> None:
        self.template: Final = lane.template
        self.socket: Final = lane.socket
        self._lane = lane
        self._blocks = [f.SendBlock(self.template, BLOCK_FRAMES) for _ in range(2)]
        self._frame_length = len(self.template.frame)
        self._numbered = 0
        self._taken_bytes = 0
        self._inbox = Inbox(lane.pending())
        self.prepare()

    @property
    def sent(self) -> int:
        """Entries that the kernel has taken in full."""
        return self._taken_bytes // self._frame_length

    @property
    def acknowledged(self) -> int:
        """Entries whose receipt came."""
        return self._lane.acknowledged

    def prepare(self) -> bool:
        """Number the next block if its buffer is free; True when it was."""
        block = self._numbered // BLOCK_FRAMES
        if self.sent < (block - 1) * BLOCK_FRAMES:
            return False
        first = f.FIRST_SEQUENCE_ID + self._numbered * self.template.messages_per_entry
        self._blocks[block % 2].number(first, now_ms())
        self._numbered += BLOCK_FRAMES
        return True

    def send(self, due: int) -> bool:
        """Send the entries below number `due` as far as the socket takes them; False when there was none."""
        if self._taken_bytes >= due * self._frame_length:
            return False
        block_bytes = BLOCK_FRAMES * self._frame_length
        while self._taken_bytes < due * self._frame_length:
            if self.sent >= self._numbered:
                self.prepare()
            block, offset = divmod(self._taken_bytes, block_bytes)
            end = min(block_bytes, due * self._frame_length - block * block_bytes)
            try:
                self._taken_bytes += self.socket.send(self._blocks[block % 2].view[offset:end])
            except BlockingIOError:
                break
        return True

    def receive(self) -> bool:
        """Read once and check what came; False when there was nothing."""
        data = self._inbox.receive(self.socket)
        if data is None:
            return False
        self._inbox.used(self._lane.feed(data))
        return True


@contextmanager
def behind_everyone() -> Iterator[None]:
    """Lets every other thread of the core go first (SCHED_IDLE), where the system has that class.

    The kernel completes a sync on any core. Its worker would wait for a time slice of a spinning
    generator, some milliseconds, and the broker would be charged for it.
    """
    if not hasattr(os, "SCHED_IDLE"):
        yield
        return
    policy = os.sched_getscheduler(0)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    try:
        yield
    finally:
        with suppress(PermissionError):  # without privileges there may be no way back
            os.sched_setscheduler(0, policy, os.sched_param(0))


def run(
    driver: Driver,
    topic: str,
    meter: Meter,
    *,
    rate_per_s: int,
    payload_bytes: int,
    messages_per_entry: int = 1,
    end_to_end: bool,
    warm_up_s: float,
    seconds: float,
) -> LatencyRun:
    """Send at a fixed rate; measure the waits for receipts and, with `end_to_end`, for delivery.

    Message i is due at `start + i / rate`. An entry of several messages leaves when its last one is due, as a
    client that gathers them sends it, and every message waits from its own time on.
    The generator spins on its core: sleeping would add the kernel's wake-up time to every figure. It does
    so in the idle class, see `behind_everyone`.
    """
    consumer = driver.consumer(topic, queue_messages=E2E_QUEUE, backlog=False) if end_to_end else None
    publisher = OpenLoopPublisher(
        driver.lane(topic, payload_bytes=payload_bytes, messages_per_entry=messages_per_entry)
    )
    if consumer:
        consumer.start(publisher.template)
    first = int(rate_per_s * warm_up_s) // messages_per_entry
    count = first + int(rate_per_s * seconds) // messages_per_entry
    receipts, deliveries, departures = Arrivals(count), Arrivals(count), Arrivals(count)
    clock = time.perf_counter_ns
    with no_garbage_collection(), behind_everyone():
        start_ns = clock() + int(LEAD_S * 1e9)
        meter_from_ns = start_ns + int(warm_up_s * 1e9)
        end_ns = meter_from_ns + int(seconds * 1e9)
        before = after = meter.now()
        metering = False
        acknowledged_in_time = 0
        while True:
            now = clock()
            if not metering and now >= meter_from_ns:
                before, metering = meter.now(), True
            if publisher.send(min(count, due_count(start_ns, rate_per_s, now) // messages_per_entry)):
                departures.until(publisher.sent, clock())
            elif publisher.receive():
                receipts.until(min(count, publisher.acknowledged), clock())
            elif not consumer:
                publisher.prepare()
            if consumer:
                consumer.receive()
                if consumer.entries_received > deliveries.count:
                    deliveries.until(consumer.entries_received, clock())
                else:
                    publisher.prepare()
            if now >= end_ns:
                if not acknowledged_in_time:
                    after, acknowledged_in_time = meter.now(), receipts.count
                all_here = receipts.count == count and (not consumer or deliveries.count == count)
                if all_here or now >= end_ns + int(DRAIN_S * 1e9):
                    break
    publisher.socket.close()
    if consumer:
        consumer.socket.close()

    due = intended_ns(start_ns, rate_per_s, 0, count * messages_per_entry).reshape(count, messages_per_entry)
    measured = (count - first) * messages_per_entry
    acknowledged = max(0, acknowledged_in_time - first) * messages_per_entry
    metrics = meter.metrics(before, after, messages=acknowledged, payload_bytes=acknowledged * payload_bytes)
    histograms: dict[str, str] = {}
    series = {"": receipts, "late_": departures} | ({"end_to_end_": deliveries} if consumer else {})
    for prefix, arrivals in series.items():
        latencies = Latencies()
        # An entry departs in time when it does so at its last message's.
        latencies.record(arrivals.latencies(due[:, -1:] if arrivals is departures else due, first))
        metrics |= latencies.milliseconds(prefix)
        histograms[prefix.rstrip("_") or "publish"] = latencies.encoded()
    notes = []
    if metrics["generator_cpu_share"] < SPIN_SHARE:
        notes.append(
            f"disturbed: the generator got only {metrics['generator_cpu_share']:.0%} of its core,"
            " and what it missed is in the latencies"
        )
    if acknowledged < SUSTAINED_SHARE * measured:
        notes.append(
            f"not sustained: {acknowledged} of {measured} messages acknowledged inside the measured time"
        )
    if receipts.count < count:
        notes.append(f"{count - receipts.count} entries had no receipt {DRAIN_S:.0f} s after the end")
    if consumer and deliveries.count < count:
        notes.append(f"{count - deliveries.count} entries were not delivered {DRAIN_S:.0f} s after the end")
    return LatencyRun(metrics, histograms, notes)

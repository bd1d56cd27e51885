"""Commits of a steady stream wait for more entries; those for receipts do not wait for that too."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass, field

from magnetar.bookie.gathering import CHECK_WINDOWS, WINDOW_S, Gathering, GatheringPhase
from magnetar.bookie.pacing import GATHERED_BYTES, Pacer
from magnetar.bookie.store_options import StoreOptions
from support.storage import run

COMMIT_S = 0.0002
WAIT_S = 0.0003
ROUND_TRIP_S = 0.0001
"""From a receipt to the client's next message."""
PER_S = 1_500


@dataclass
class Disk:
    """A disk on which a commit takes COMMIT_S, and messages that come by themselves or after receipts."""

    gathering: Gathering
    arrivals: list[float] = field(default_factory=list)
    now_s: float = 0.0
    messages: int = 0
    commits: int = 0

    def run(self, seconds: float, *, under_way: int | None = None) -> None:
        """Commits until the time is over. `under_way`: each receipt is answered by the next message."""
        end_s = self.now_s + seconds
        if under_way is not None:
            self.arrivals = [self.now_s] * under_way
        begin_s = self.now_s
        while self.arrivals and begin_s < end_s:
            group = 0
            while self.arrivals and self.arrivals[0] <= begin_s:
                heapq.heappop(self.arrivals)
                group += 1
            self.now_s = begin_s + COMMIT_S
            self.messages += group
            self.commits += 1
            followed = bool(self.arrivals) and self.arrivals[0] <= self.now_s
            self.gathering.committed(1_000 * group, self.now_s, followed=followed)
            if under_way is not None:
                for number in range(group):
                    heapq.heappush(self.arrivals, self.now_s + ROUND_TRIP_S + number * 5e-6)
            if followed:
                begin_s = self.now_s + WAIT_S * self.gathering.waits
            elif self.arrivals:
                begin_s = max(self.now_s, self.arrivals[0])

    def paced(self, rate_per_s: int, seconds: float) -> None:
        """Messages that come at a rate, whatever happens."""
        count = int(rate_per_s * seconds)
        self.arrivals = [self.now_s + number / rate_per_s for number in range(count)]
        self.run(seconds)


def test_a_steady_stream_shares_commits() -> None:
    disk = Disk(Gathering(PER_S))
    disk.paced(6_000, 10 * WINDOW_S)
    assert disk.gathering.phase is GatheringPhase.ON
    disk.commits = disk.messages = 0
    disk.paced(6_000, CHECK_WINDOWS * WINDOW_S)
    assert disk.messages / disk.commits > 2.5


def test_it_goes_on_after_each_comparison() -> None:
    disk = Disk(Gathering(PER_S))
    phases = set()
    for _ in range(3 * CHECK_WINDOWS):
        disk.paced(6_000, 1.05 * WINDOW_S)
        phases.add(disk.gathering.phase)
    assert phases >= {GatheringPhase.TRIAL, GatheringPhase.ON, GatheringPhase.CHECK}
    assert disk.messages / disk.commits > 2.3


def test_who_sends_after_a_receipt_is_as_fast_as_without_it() -> None:
    for under_way in (3, 10, 30):
        without, disk = Disk(Gathering(float("inf"))), Disk(Gathering(PER_S))
        without.run(20.0, under_way=under_way)
        disk.run(20.0, under_way=under_way)
        assert disk.messages > 0.95 * without.messages, under_way


def test_one_message_under_way_is_not_even_tried() -> None:
    disk = Disk(Gathering(PER_S))
    for _ in range(50):
        disk.run(WINDOW_S, under_way=1)
        assert disk.gathering.phase is GatheringPhase.OFF


def test_few_commits_are_not_even_tried() -> None:
    disk = Disk(Gathering(PER_S))
    for _ in range(50):
        disk.paced(1_000, WINDOW_S)
        assert disk.gathering.phase is GatheringPhase.OFF


def test_a_stream_that_begins_to_wait_for_receipts_is_noticed() -> None:
    disk = Disk(Gathering(PER_S))
    disk.paced(6_000, 1.0)
    assert disk.gathering.waits
    disk.run((CHECK_WINDOWS + 3) * WINDOW_S, under_way=10)
    assert not disk.gathering.waits


def test_after_a_pause_nothing_waits() -> None:
    disk = Disk(Gathering(PER_S))
    disk.paced(6_000, 1.0)
    assert disk.gathering.waits
    disk.gathering.committed(1_000, disk.now_s + 3 * WINDOW_S, followed=True)
    assert not disk.gathering.waits


class Flushes:
    """A pacer whose commits are counted."""

    def __init__(self) -> None:
        self.count = 0
        self.pacer = Pacer(self._flush, StoreOptions(gather_wait_us=1, gather_per_s=0))
        now_s, self.gathers = 0.0, False
        while not self.gathers:
            now_s += 0.001
            self.gathers = not self.pacer.freed(1_000, 0, now_s, waiting_bytes=1_000)
        self.now_s = now_s

    def _flush(self) -> None:
        self.count += 1
        self.pacer.taken(all_of_it=True)


def test_the_next_commit_begins_after_a_rest() -> None:
    async def story() -> None:
        flushes = Flushes()
        flushes.pacer.added(0.0, busy=False)
        flushes.pacer.told()
        flushes.pacer.added(0.0, busy=False)
        await asyncio.sleep(0)
        assert not flushes.count, "the sockets are looked at first"
        flushes.pacer.added(0.0, busy=False)
        for _ in range(5):
            await asyncio.sleep(0)
        assert flushes.count == 1, "who came meanwhile began no other"

    run(story())


def test_much_that_waits_does_not_wait_for_more() -> None:
    async def story() -> None:
        flushes = Flushes()
        flushes.pacer.told()
        for _ in range(5):
            await asyncio.sleep(0)
        assert flushes.pacer.freed(1_000, 0, flushes.now_s, waiting_bytes=GATHERED_BYTES)

    run(story())

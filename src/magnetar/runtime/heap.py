"""When the garbage collector runs, and what it costs.

Reference counting frees all that this program makes: connections, readers and topics that end leave no cycles
(`tests/unit/broker/topic/test_freed.py`). The collector is there for cycles that are not known. So

- objects that live after the start are frozen: no collection walks them again;
- the youngest generation is collected as usual, in small steps (about a millisecond);
- the older generations, which a collection must walk as a whole (half a second for a million objects, in
  which all connections stand still), are collected only when enough connections and topics have ended, or
  after very many young collections. When that finds little, the interval grows. And only when it is expected
  to take PAUSE_MAX_S at most: a larger heap waits until it is smaller, until nothing has happened for a
  minute, or until it has grown by so much that most of it may be garbage.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable
from typing import Final

from magnetar.observability.metrics import Exposition, labels

_YOUNG_MAX: Final = 2_000
"""Allocations minus deallocations that start a collection of the youngest generation. Python's default of 700
is exceeded by every socket read, and 50,000 makes a pause of 15 ms. A list counts as one, and each of its
items is walked: with 5,000, two hundred calls that list 2,000 topics each made a pause of 68 ms."""
_NEVER: Final = 1 << 30
_ENDED_MIN: Final = 1_000
"""Connections and topics, of about 10 kB each, that must have ended before a full collection."""
_ENDED_MAX: Final = 32_000
"""The same bound after full collections that found little."""
_ROUNDS_MIN: Final = 2_000
"""Young collections after which a full one follows although no connection or topic has ended."""
_ROUNDS_MAX: Final = 64_000
_WORTH_OBJECTS: Final = 5_000
"""A full collection that finds fewer objects was not worth it."""
CHECK_S: Final = 10.0
"""Seconds between two checks whether a full collection is due."""
PAUSE_MAX_S: Final = 0.02
"""Longest pause in seconds while there is any activity."""
_BLOCK_S_FIRST: Final = 100e-9
"""Seconds of a full collection per memory block, assumed before the first one was measured. Measured: 30 to
130 ns."""
_BLOCKS_MIN: Final = 20_000
"""Below this many blocks a measured time says nothing about the time per block."""
_GROWN_BLOCKS: Final = 4_000_000
"""Blocks, about 400 MB: a heap that grew by this much since its last collection is collected in spite of the
pause, because memory that grows without bound would end the process."""
_IDLE_LOOKS: Final = 6
"""Consecutive checks with no end and no young collection between them, after which the process counts as
idle."""


class Schedule:
    """Decides when everything is collected (pure)."""

    __slots__ = (
        "_block_s",
        "_blocks_after",
        "_ended_at",
        "_idle_looks",
        "_last",
        "_rounds_at",
        "ended_max",
        "rounds_max",
    )

    ended_max: int
    """Ends that make the next full collection due."""
    rounds_max: int
    """Young collections that make the next full one due when nothing ends."""

    def __init__(self) -> None:
        self._ended_at = 0
        self._rounds_at = 0
        self.ended_max = _ENDED_MIN
        self.rounds_max = _ROUNDS_MIN
        self._block_s = _BLOCK_S_FIRST
        self._blocks_after = 0
        self._last = (0, 0)
        self._idle_looks = 0

    def looked(self, ended: int, rounds: int) -> None:
        """To be called every CHECK_S with the arguments of `due`: records whether there is activity."""
        self._idle_looks = self._idle_looks + 1 if self._last == (ended, rounds) else 0
        self._last = ended, rounds

    def allowed(self, blocks: int) -> bool:
        """Whether a full collection of this many memory blocks may run: nothing notices its pause, or it must
        not wait longer."""
        return (
            blocks * self._block_s <= PAUSE_MAX_S
            or self._idle_looks >= _IDLE_LOOKS
            or blocks - self._blocks_after >= _GROWN_BLOCKS
        )

    def took(self, blocks: int, cpu_s: float, after: int) -> None:
        """Records the seconds of a full collection, the blocks before it and those `after` it."""
        self._blocks_after = after
        if blocks >= _BLOCKS_MIN:
            self._block_s = cpu_s / blocks

    def due(self, ended: int, rounds: int) -> bool:
        """Whether a full collection is due. `ended` and `rounds` count the ends and the young collections
        since the process began."""
        return ended - self._ended_at >= self.ended_max or rounds - self._rounds_at >= self.rounds_max

    def collected(self, ended: int, rounds: int, found: int) -> None:
        """Records that a full collection found this many garbage objects."""
        if found >= _WORTH_OBJECTS:
            self.ended_max, self.rounds_max = _ENDED_MIN, _ROUNDS_MIN
        elif ended - self._ended_at >= self.ended_max:
            self.ended_max = min(_ENDED_MAX, 2 * self.ended_max)
        elif rounds - self._rounds_at >= self.rounds_max:
            self.rounds_max = min(_ROUNDS_MAX, 2 * self.rounds_max)
        self._ended_at, self._rounds_at = ended, rounds


class Heap:
    """The garbage collector of this process. Call `settle` once after the start, then `collect_if_due`
    regularly."""

    def __init__(self, ended: Callable[[], int]) -> None:
        """`ended` counts the connections and topics that ended since the process began, see `Schedule`."""
        self.pause_s = 0.0
        """Seconds spent in collections since the process began."""
        self.pause_s_max = 0.0
        """The longest one."""
        self._ended = ended
        self._schedule = Schedule()
        self._frozen_blocks = 0
        self._began_s = 0.0
        self._by_generation = [0.0, 0.0, 0.0]

    def settle(self) -> None:
        """Freezes all living objects: collections do not walk them again.

        Also enables the collector, which the loading of the program's modules disabled.
        """
        gc.collect()
        gc.freeze()
        self._frozen_blocks = sys.getallocatedblocks()
        gc.enable()
        gc.set_threshold(_YOUNG_MAX, _NEVER, _NEVER)
        gc.callbacks.append(self._measure)

    def _measure(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_s = time.perf_counter()
            return
        pause_s = time.perf_counter() - self._began_s
        self.pause_s += pause_s
        self.pause_s_max = max(self.pause_s_max, pause_s)
        self._by_generation[info["generation"]] += pause_s

    async def collect_if_due(self) -> None:
        """Collects all generations when the schedule says so; the event loop stands still meanwhile."""
        rounds, schedule = gc.get_stats()[0]["collections"], self._schedule
        schedule.looked(self._ended(), rounds)
        if not schedule.due(self._ended(), rounds):
            return
        # Counting blocks takes milliseconds in a large heap: only when a collection is due.
        blocks = sys.getallocatedblocks() - self._frozen_blocks
        if schedule.allowed(blocks):
            began_s = time.thread_time()
            found = gc.collect()
            cpu_s = time.thread_time() - began_s
            schedule.took(blocks, cpu_s, sys.getallocatedblocks() - self._frozen_blocks)
            schedule.collected(self._ended(), rounds, found)

    def close(self) -> None:
        """Stops measuring."""
        if self._measure in gc.callbacks:
            gc.callbacks.remove(self._measure)

    def collect_metrics(self, out: Exposition) -> Iterable[None]:
        """A collector of `/metrics`; names as in Prometheus's client library for Python."""
        for generation, stats in enumerate(gc.get_stats()):
            labelled = labels(("generation", str(generation)))
            out.counter(
                "python_gc_collections_total",
                "Garbage collections, by generation.",
                stats["collections"],
                labelled,
            )
            out.counter(
                "python_gc_objects_collected_total", "Garbage objects found.", stats["collected"], labelled
            )
            out.counter(
                "magnetar_gc_seconds_total",
                "Time in which the garbage collector stopped the event loop.",
                self._by_generation[generation],
                labelled,
            )
        out.gauge(
            "magnetar_gc_pause_seconds_max", "Longest garbage collection since the start.", self.pause_s_max
        )
        return ()

"""When the garbage collector runs, and what it costs.

Counting references frees everything that is known: connections, readers and topics that end leave no cycles
(`tests/unit/broker/topic/test_freed.py`). The collector is there for what nobody knew of. So

- what lives after start is frozen: nothing ever walks it again;
- the youngest generation is collected as usual, in small steps (a millisecond or so);
- the older ones, which a collection has to walk as a whole (half a second for a million objects, all
  connections standing still), only when enough has ended, or after very many young collections. When that
  finds little, the next such one waits longer. And only when it is expected to take PAUSE_MAX_S at most: a
  larger heap waits until it is smaller, until nothing has happened for a minute, or until it has grown by so
  much that most of it may be garbage.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from magnetar.observability.metrics import Exposition, labels

_YOUNG_MAX: Final = 5_000
"""Allocations beyond deallocations before the youngest generation is collected. Python's own 700 is
passed by every socket read, and 50,000 make a pause of 15 ms."""
_NEVER: Final = 1 << 30
_ENDED_MIN: Final = 1_000
"""Ended connections and topics, of about 10 kB each, before everything is collected."""
_ENDED_MAX: Final = 32_000
"""The same when that finds nothing again and again: what ends is mostly freed by then."""
_ROUNDS_MIN: Final = 2_000
"""Young collections without anything known to have ended before everything is collected all the same."""
_ROUNDS_MAX: Final = 64_000
_WORTH_OBJECTS: Final = 5_000
"""A collection that found fewer was for nothing."""
CHECK_S: Final = 10.0
"""Between two looks at whether a full collection is due."""
PAUSE_MAX_S: Final = 0.02
"""How long everything may stand still while anything is going on."""
_BLOCK_S_FIRST: Final = 100e-9
"""Of a full collection's time for each block of memory, before one was measured. Measured: 30 to 130 ns."""
_BLOCKS_MIN: Final = 20_000
"""Fewer say nothing about the time for each."""
_GROWN_BLOCKS: Final = 4_000_000
"""A heap that has grown by so much since it was collected, some 400 MB, is collected though that is felt:
memory that grows without end would end the process."""
_IDLE_LOOKS: Final = 6
"""Looks in a row between which nothing ended and no young collection was needed: nobody is there."""


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
    """Ends until the next full collection."""
    rounds_max: int
    """Young collections until the next full one, when nothing ends."""

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
        """Called every CHECK_S, with what `due` is told: notes whether anything goes on."""
        self._idle_looks = self._idle_looks + 1 if self._last == (ended, rounds) else 0
        self._last = ended, rounds

    def allowed(self, blocks: int) -> bool:
        """Whether nobody would feel a collection of so many blocks of memory, or it must not wait longer."""
        return (
            blocks * self._block_s <= PAUSE_MAX_S
            or self._idle_looks >= _IDLE_LOOKS
            or blocks - self._blocks_after >= _GROWN_BLOCKS
        )

    def took(self, blocks: int, cpu_s: float, after: int) -> None:
        """A full collection needed so much, while there were so many blocks before it, and `after` it."""
        self._blocks_after = after
        if blocks >= _BLOCKS_MIN:
            self._block_s = cpu_s / blocks

    def due(self, ended: int, rounds: int) -> bool:
        """`ended` and `rounds` count, since the process began, what has ended and young collections."""
        return ended - self._ended_at >= self.ended_max or rounds - self._rounds_at >= self.rounds_max

    def collected(self, ended: int, rounds: int, found: int) -> None:
        """Everything was collected, and `found` objects were garbage."""
        if found >= _WORTH_OBJECTS:
            self.ended_max, self.rounds_max = _ENDED_MIN, _ROUNDS_MIN
        elif ended - self._ended_at >= self.ended_max:
            self.ended_max = min(_ENDED_MAX, 2 * self.ended_max)
        elif rounds - self._rounds_at >= self.rounds_max:
            self.rounds_max = min(_ROUNDS_MAX, 2 * self.rounds_max)
        self._ended_at, self._rounds_at = ended, rounds


class Heap:
    """The collector of this process. `settle` once after start, then `collect_if_due` now and then."""

    def __init__(self, ended: Callable[[], int]) -> None:
        """`ended` counts what has ended since the process began, see `Schedule`."""
        self.pause_s = 0.0
        """Time spent in collections so far."""
        self.pause_s_max = 0.0
        """The longest one."""
        self._ended = ended
        self._schedule = Schedule()
        self._frozen_blocks = 0
        self._began_s = 0.0
        self._by_generation = [0.0, 0.0, 0.0]

    def settle(self) -> None:
        """What lives now lives for ever: collections need not walk it.

        Starts the collector too, which whoever loads the program's modules has stopped meanwhile.
        """
        gc.collect()
        gc.freeze()
        self._frozen_blocks = sys.getallocatedblocks()
        gc.enable()
        gc.set_threshold(_YOUNG_MAX, _NEVER, _NEVER)
        gc.callbacks.append(self._measure)

    def _measure(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began_s = time.perf_counter()
            return
        pause_s = time.perf_counter() - self._began_s
        self.pause_s += pause_s
        self.pause_s_max = max(self.pause_s_max, pause_s)
        self._by_generation[info["generation"]] += pause_s

    async def collect_if_due(self) -> None:
        """Collects everything, and stops the loop for that long, when the schedule says so."""
        rounds, schedule = gc.get_stats()[0]["collections"], self._schedule
        schedule.looked(self._ended(), rounds)
        if not schedule.due(self._ended(), rounds):
            return
        # Counting blocks takes milliseconds in a large heap: only now.
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

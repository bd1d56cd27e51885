"""Stretches of a measurement: what the broker and the generator used between two moments."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bench import proc

MEGA: Final = 1e6
GIGA: Final = 1e9


@dataclass(frozen=True, slots=True)
class Moment:
    """The meters at one moment."""

    wall_s: float
    broker_cpu_s: float
    generator_cpu_s: float
    machine_cpu_s: float
    """User, system and stolen time of all cores together."""


class Meter:
    """Reads the meters of a broker's process tree (if its pid is known) and of this process."""

    def __init__(self, broker_pid: int | None) -> None:
        self.broker_pid: Final = broker_pid

    def now(self) -> Moment:
        """The meters at this moment; a few milliseconds of work, so only at the ends of a stretch."""
        broker_cpu_s = proc.usage(self.broker_pid).cpu_s if self.broker_pid else float("nan")
        return Moment(time.perf_counter(), broker_cpu_s, time.process_time(), proc.machine_cpu_s())

    def rss_bytes(self) -> float:
        """Resident bytes of the broker's process tree now; NaN when its pid is unknown."""
        return float(proc.usage(self.broker_pid).rss_bytes) if self.broker_pid else float("nan")

    def metrics(self, start: Moment, end: Moment, *, messages: int, payload_bytes: int) -> dict[str, float]:
        """Rates and costs of a stretch in which `messages` of together `payload_bytes` went through."""
        seconds = end.wall_s - start.wall_s
        out = {
            "seconds": seconds,
            "messages": float(messages),
            "messages_per_s": messages / seconds,
            "megabytes_per_s": payload_bytes / seconds / MEGA,
            "generator_cpu_share": (end.generator_cpu_s - start.generator_cpu_s) / seconds,
        }
        if self.broker_pid:
            cpu_s = end.broker_cpu_s - start.broker_cpu_s
            out["broker_cpu_share"] = cpu_s / seconds
            machine_s = end.machine_cpu_s - start.machine_cpu_s
            generator_s = end.generator_cpu_s - start.generator_cpu_s
            out["other_cpu_share"] = max(0.0, (machine_s - cpu_s - generator_s) / seconds)
            if messages:
                out["broker_cpu_s_per_million"] = cpu_s / messages * MEGA
                out["broker_cpu_s_per_gb"] = cpu_s / payload_bytes * GIGA
            out["broker_rss_mb"] = proc.usage(self.broker_pid).rss_bytes / MEGA
        return out


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep the generator's own collector out of the measurement."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()

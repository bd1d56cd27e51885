"""From exec to the first acknowledged message, and what the broker holds when idle."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import proc
from bench.broker import Broker, Cpus, started
from bench.meter import MEGA, Meter
from bench.publisher import Publisher
from bench.pulsar_driver import PulsarDriver
from bench.scenario import StartLoad
from bench.throughput import publish_all

IDLE_S: Final = 2.0
TOPICS_BEFORE: Final = 4


def run(command: Sequence[str], folder: Path, cpus: Cpus, load: StartLoad) -> dict[str, float]:
    """Start the broker, on an empty store or one that was filled before, and publish one message."""
    # The first start after a change of the sources writes bytecode, which an installation has from the start.
    before_all = folder / "bytecode"
    before_all.mkdir()
    with started(command, before_all, cpus):
        pass
    if load.data != "empty":
        stop = signal.SIGTERM if load.data == "existing" else signal.SIGKILL
        with started(command, folder, cpus, stop_signal=stop) as broker:
            _publish(broker, load.messages_before)
    with started(command, folder, cpus) as broker:
        _publish(broker, 1)
        assert broker.exec_s is not None
        assert broker.ready_s is not None
        assert broker.pid is not None
        first_s = time.perf_counter() - broker.exec_s
        before = proc.usage(broker.pid)
        time.sleep(IDLE_S)
        after = proc.usage(broker.pid)
        return {
            "ready_s": broker.ready_s,
            "first_acknowledged_s": first_s,
            "start_cpu_s": before.cpu_s,
            "broker_rss_mb": after.rss_bytes / MEGA,
            "threads": float(after.threads),
            "processes": float(after.processes),
            "idle_cpu_share": (after.cpu_s - before.cpu_s) / IDLE_S,
        }


def _publish(broker: Broker, messages: int) -> None:
    """Publish unbatched messages of 1 KiB to four topics, or a single one to one."""
    topics = min(TOPICS_BEFORE, messages)
    driver = PulsarDriver(broker.service_url)
    lanes = [
        driver.lane(f"persistent://public/default/bench-start-{i}", payload_bytes=1024, messages_per_entry=1)
        for i in range(topics)
    ]
    publishers = [Publisher(lane, entries_max=messages // topics) for lane in lanes]
    publish_all(publishers, Meter(None))

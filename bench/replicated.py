"""What do copies on bookies cost a broker, and how long do publishers wait when a bookie is killed?

    python -m bench replicated [--folder DIR] [--seconds S] [--kills N] [--json PATH]

The broker with its bookies, `magnetar standalone --bookies`, all on this machine, everything synced:

- messages of 1 KiB, one by one and 100 an entry: rate, CPU of the broker's process and of all its processes
  for a million messages; with messages in the process, two and three copies on three bookies (Qa 2);
- an open loop of 500 messages a second while bookies are killed, every few seconds another one: the waits for
  receipts, p50, p99 and longest. Each wait counts from when the message was due.

Figures depend on what else the machine does; the broker and all bookies share its cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench import latency, proc
from bench.broker import Broker, Cpus, magnetar_command, started
from bench.meter import Meter
from bench.publisher import Publisher
from bench.pulsar_driver import PulsarDriver
from bench.run import new_topic
from bench.throughput import publish_for

CASES: Final[Sequence[tuple[str, int, int]]] = (
    ("in the process", 0, 0),
    ("2 copies, 3 bookies", 3, 2),
    ("3 copies, 3 bookies", 3, 3),
)
"""Name, bookies, copies."""
LOADS: Final = ((1, 2_000), (100, 20_000))
"""Messages of an entry, messages under way."""
RATE_PER_S: Final = 500
PAYLOAD_BYTES: Final = 1_024
BETWEEN_KILLS_S: Final = 4.0


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables for whatever is started in the body."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def broker_with(folder: Path, bookies: int, copies: int) -> Iterator[Broker]:
    """A broker on so many bookies, 0: none."""
    options = ["--bookies", str(bookies)] if bookies else []
    values = {
        "MAGNETAR_LEDGER_ENSEMBLE_SIZE": str(copies),
        "MAGNETAR_LEDGER_WRITE_QUORUM": str(copies),
    }
    command = [*magnetar_command(), *options]
    with environment(values if bookies else {}), started(command, folder, Cpus(None, None)) as broker:
        yield broker


def own_cpu_s(broker: Broker) -> float:
    """CPU seconds of the broker's process without those that it started."""
    return next(stat.cpu_s for stat in proc.read_all() if stat.pid == broker.pid)


def publish(broker: Broker, messages_per_entry: int, window: int, seconds: float) -> dict[str, float]:
    """A closed loop."""
    lane = PulsarDriver(broker.service_url).lane(
        new_topic(), payload_bytes=PAYLOAD_BYTES, messages_per_entry=messages_per_entry
    )
    before_s = own_cpu_s(broker)
    found = publish_for(
        [Publisher(lane, window_messages=window)], Meter(broker.pid), warm_up_s=0.0, seconds=seconds
    )
    found["own_cpu_s_per_million"] = (own_cpu_s(broker) - before_s) / found["messages"] * 1e6
    return found


def waits(broker: Broker, folder: Path, bookies: int, kills: int) -> tuple[dict[str, float], list[str]]:
    """An open loop while bookies are killed."""
    over = threading.Event()

    def kill() -> None:
        alive = folder / "data" / "bookies" / "alive"
        for number in itertools.islice(itertools.cycle(range(1, bookies + 1)), kills):
            if over.wait(BETWEEN_KILLS_S):
                return
            os.kill(json.loads((alive / f"bookie-{number}").read_bytes())["pid"], signal.SIGKILL)

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        run = latency.run(
            PulsarDriver(broker.service_url),
            new_topic(),
            Meter(broker.pid),
            rate_per_s=RATE_PER_S,
            payload_bytes=PAYLOAD_BYTES,
            end_to_end=False,
            warm_up_s=1.0,
            seconds=(kills + 1) * BETWEEN_KILLS_S,
        )
    finally:
        over.set()
        killing.join()
    return run.metrics, run.notes


def main(words: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench replicated", description="Measures copies.")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the data goes"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="measured time of a case (10)")
    parser.add_argument("--kills", type=int, default=6, help="bookies killed under load (6)")
    parser.add_argument("--json", type=Path, help="write everything measured there")
    chosen = parser.parse_args(words)
    told: list[dict[str, object]] = []
    for name, bookies, copies in CASES:
        with (
            tempfile.TemporaryDirectory(dir=chosen.folder) as scratch,
            broker_with(Path(scratch), bookies, copies) as broker,
        ):
            for messages_per_entry, window in LOADS:
                found = publish(broker, messages_per_entry, window, chosen.seconds)
                told.append({"case": name, "messages_per_entry": messages_per_entry, **found})
                print(
                    f"{name:20} {messages_per_entry:4} messages an entry  "
                    f"{found['messages'] / found['seconds']:9.0f} messages/s  CPU for a million: broker "
                    f"{found['own_cpu_s_per_million']:5.1f} s, all {found['broker_cpu_s_per_million']:5.1f} s"
                )
            metrics, notes = waits(broker, Path(scratch), bookies, chosen.kills if bookies else 0)
            told.append({"case": name, "kills": chosen.kills if bookies else 0, **metrics})
            print(
                f"{name:20} {chosen.kills if bookies else 0} bookies killed  "
                f"p50 {metrics['p50_ms']:.1f} ms  p99 {metrics['p99_ms']:.1f} ms  "
                f"longest {metrics['max_ms']:.0f} ms" + "".join(f"  ({note})" for note in notes)
            )
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(told, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

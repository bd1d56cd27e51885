"""Command line: `python -m bench guard`: is a hot path a multiple dearer than it was?

CPU time of the core codecs, and of a broker under a short load, compared with `bench/baseline.json`. Machines
differ, so every cost is divided by that of a fixed piece of work of the same kind (`yardstick`), measured in
the same process. It reports; it fails only at LIMIT times the baseline, which no noise reaches.
`--update` writes a new baseline.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import google_crc32c

from bench.broker import Cpus, magnetar_command, started
from bench.frames import SendBlock, SendTemplate
from bench.meter import Meter, no_garbage_collection
from bench.payload import message_of
from bench.publisher import Publisher
from bench.pulsar_driver import PulsarDriver
from bench.report import figure, text_table
from bench.throughput import publish_all
from magnetar.base.entries import EntryRun
from magnetar.base.ids import ConsumerId, LedgerId, Position, ProducerId
from magnetar.bookie.entry_blocks import blocks_of
from magnetar.wire.acks import encode_ack
from magnetar.wire.messages import MessageEncoder
from magnetar.wire.receipts import encode_receipts
from magnetar.wire.server import ServerParser

BASELINE: Final = Path(__file__).with_name("baseline.json")
LIMIT: Final = 4.0
"""A cost of so many times the baseline fails."""
BAND: Final = 1.5
"""From here on the report says so."""
ROUNDS: Final = 9
ROUND_S: Final = 0.03
ROWS: Final = 256
FRAME_MAX: Final = 6 << 20
LOADS: Final = (("publish 100 B", 100, 1, 100_000), ("publish 1 KiB, batched", 1024, 100, 1_000))
"""Name, bytes of a payload, messages of an entry, entries."""
LOAD_ROUNDS: Final = 4
"""The cheapest of so many counts: the first one also makes the topic."""


def cpu_s(work: Callable[[], object]) -> float:
    """Least CPU seconds of one call over some rounds: what else ran on the core can only add."""
    work()
    best = float("inf")
    for _ in range(ROUNDS):
        calls, begin = 0, time.process_time()
        while (spent := time.process_time() - begin) < ROUND_S:
            work()
            calls += 1
        best = min(best, spent / calls)
    return best


def yardstick() -> None:
    """The same kinds of work as a codec, never changed: integers, slices, joins, a checksum."""
    data = bytes(range(256)) * 16
    parts = []
    total = 0
    for i in range(256):
        piece = data[i : i + 100]
        total += piece[0] << 7 | i & 0x7F
        parts.append(total.to_bytes(8, "big") + piece)
    google_crc32c.value(b"".join(parts))


def codecs() -> dict[str, float]:
    """CPU seconds of one message in each codec, in batches as the broker meets them."""
    template = SendTemplate(producer_id=1, producer_name="guard", message=message_of(100))
    block = SendBlock(template, ROWS)
    block.number(1 << 21, 1_700_000_000_000)
    sends = bytearray(block.view)
    positions = [Position(LedgerId(7), i) for i in range(ROWS)]
    acks = bytearray(b"".join(encode_ack(ConsumerId(3), [position]) for position in positions))
    entries = [bytes(frame[-200:]) for frame in block.frames]
    run = EntryRun(LedgerId(7), 0, entries, None, 0, 1_700_000_000_000)
    encoder = MessageEncoder(ConsumerId(3))
    ids = list(range(1 << 21, (1 << 21) + ROWS))
    works: dict[str, Callable[[], object]] = {
        "parse SEND": lambda: ServerParser(FRAME_MAX).parse(sends, len(sends)),
        "parse ACK": lambda: ServerParser(FRAME_MAX).parse(acks, len(acks)),
        "encode receipts": lambda: encode_receipts(ProducerId(1), ids, None, LedgerId(7), 0),
        "encode MESSAGE": lambda: encoder.encode(run, 0, ROWS, []),
        "make a block": lambda: blocks_of(LedgerId(7), 0, entries, None, 0, 1_700_000_000_000),
    }
    return {name: cpu_s(work) / ROWS for name, work in works.items()}


def broker() -> dict[str, float]:
    """CPU seconds of one message of a durable broker: unbatched 100 B, and batches of 100 of 1 KiB.

    A number of messages and not a time, so that a busy machine does not change what is divided by what.
    """
    out = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-guard-") as folder,
        started(magnetar_command(), Path(folder), Cpus(None, None)) as running,
    ):
        driver = PulsarDriver(running.service_url)
        for name, payload, per_entry, entries in LOADS:
            topic = f"persistent://public/default/guard-{per_entry}"
            costs = []
            for _ in range(LOAD_ROUNDS):
                lane = driver.lane(topic, payload_bytes=payload, messages_per_entry=per_entry)
                start, end = publish_all([Publisher(lane, entries_max=entries)], Meter(running.pid))
                costs.append((end.broker_cpu_s - start.broker_cpu_s) / (entries * per_entry))
            out[name] = min(costs)
    return out


def measure() -> dict[str, float]:
    """Each cost in yardsticks: CPU time of a message over that of one `yardstick`."""
    with no_garbage_collection():
        before = cpu_s(yardstick)
        costs = codecs()
        costs |= broker()
        unit = statistics.mean((before, cpu_s(yardstick)))
    return {name: cost / unit for name, cost in costs.items()} | {"yardstick_us": unit * 1e6}


def main() -> int:
    """0 unless a cost is LIMIT times its baseline."""
    parser = argparse.ArgumentParser(prog="python -m bench guard", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write a new baseline")
    given = parser.parse_args()
    found = measure()
    if given.update:
        rounded = {name: float(f"{cost:.4g}") for name, cost in found.items()}
        BASELINE.write_text(json.dumps(rounded, indent=1) + "\n")
        return 0
    baseline = json.loads(BASELINE.read_text())
    rows = [["cost of a message", "yardsticks", "baseline", "ratio", ""]]
    worst = 0.0
    for name, cost in found.items():
        if name == "yardstick_us":
            continue
        ratio = cost / baseline[name]
        worst = max(worst, ratio)
        word = "TOO DEAR" if ratio >= LIMIT else "dearer" if ratio >= BAND else ""
        rows.append([name, figure(cost), figure(baseline[name]), f"{ratio:.2f}", word])
    print(text_table(rows))
    print(f"\none yardstick is {found['yardstick_us']:.0f} µs here; a ratio of {LIMIT:g} fails")
    return int(worst >= LIMIT)


if __name__ == "__main__":
    sys.exit(main())

"""How fast do sealed ledgers become Parquet files, how large are these, and how fast do entries come back?

    python -m bench.offload_format [CASE] [--mib N] [--seconds S] [--json FILE]

Everything happens on one core of this process, as in the worker: no broker, no store, files in a temporary
folder. MB are 10^6 bytes of entries as the ledger stored them, per second of CPU of this process. `flights`
are the departures of 2013 from New York as JSON, with the decoded fields as columns. Each figure is the
best of the runs that fit into the time, at least three.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa

from bench import machine
from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId
from magnetar.history.files import LocalFile
from magnetar.history.reader import SegmentReader
from magnetar.history.segment_writer import write_segment
from magnetar.tiered.parquet.parquet_history import SegmentOrigin, StoredTopicSchema
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

RUNS_MIN: Final = 3
LEDGER: Final = 5
TIME_MS: Final = 1_700_000_000_000
APPEND_BYTES: Final = 200_000
"""Entries of one append: what share a broker time."""
READ_BYTES: Final = 4 << 20
BATCH: Final = 100

CASES: Final = ("100b-batched", "100b-unbatched", "1k-batched", "1k-unbatched", "flights")


def random_payloads(size: int) -> Iterator[tuple[str, bytes, int]]:
    """Keys of ten thousand, payloads that cannot be compressed much."""
    chance = random.Random(1)
    pool = chance.randbytes(8 << 20)
    while True:
        at = chance.randrange(len(pool) - size)
        yield f"key-{chance.randrange(10_000)}", pool[at : at + size], 0


def flights() -> Iterator[tuple[str, bytes, int]]:
    """Departures as the demo publishes them: route, JSON, event time."""
    from magnetar.demo.data import load
    from magnetar.demo.events import departures
    from magnetar.demo.scenario import Scenario

    for feed in departures(load(), Scenario()):
        yield from zip(feed.keys, feed.payloads, feed.event_ms, strict=True)


def entries_of(
    messages: Iterator[tuple[str, bytes, int]], batch: int, bytes_max: int
) -> Iterator[tuple[bytes, int]]:
    """Entries as clients send them, with the number of their messages."""
    sequence_id = size_bytes = 0
    while size_bytes < bytes_max:
        chosen = list(islice(messages, batch))
        if not chosen:
            return
        metadata = pb.MessageMetadata(
            producer_name="standalone-0-1",
            sequence_id=sequence_id,
            publish_time=TIME_MS + sequence_id // 1000,
        )
        if batch == 1:
            key, payload, event_ms = chosen[0]
            metadata.partition_key = key
            if event_ms:
                metadata.event_time = event_ms
        else:
            singles = []
            for number, (key, part, event_ms) in enumerate(chosen):
                single = pb.SingleMessageMetadata(partition_key=key, sequence_id=sequence_id + number)
                if event_ms:
                    single.event_time = event_ms
                singles.append((single, part))
            payload = build_batch(singles)
            metadata.num_messages_in_batch = len(chosen)
            metadata.highest_sequence_id = sequence_id + len(chosen) - 1
        entry = build_entry(metadata, payload)
        sequence_id += len(chosen)
        size_bytes += len(entry)
        yield entry, len(chosen)


def runs_of(entries: Iterator[tuple[bytes, int]]) -> list[EntryRun]:
    """Runs of about APPEND_BYTES."""
    runs: list[EntryRun] = []
    part: list[bytes] = []
    counts: list[int] = []
    first = index = size_bytes = 0
    for entry, count in [*entries, (b"", 0)]:
        if part and (size_bytes >= APPEND_BYTES or not count):
            runs.append(EntryRun(LedgerId(LEDGER), first, part, counts, index, TIME_MS + first))
            first, index = first + len(part), index + sum(counts)
            part, counts, size_bytes = [], [], 0
        part.append(entry)
        counts.append(count)
        size_bytes += len(entry)
    return runs


def make(case: str, bytes_max: int) -> tuple[list[EntryRun], SegmentOrigin]:
    """The ledger of a case."""
    topic = "persistent://public/default/bench"
    if case == "flights":
        from magnetar.demo.topics import SCHEMAS, Encoded

        definition = Encoded(SCHEMAS["departures"]).definition()
        schema = StoredTopicSchema(bytes(8), pb.Schema.Type.Json, definition.encode())
        return runs_of(entries_of(flights(), BATCH, 1 << 62)), SegmentOrigin(
            topic, LedgerId(LEDGER), [schema]
        )
    size = 100 if case.startswith("100b") else 1024
    batch = 1 if case.endswith("unbatched") else BATCH
    return runs_of(entries_of(random_payloads(size), batch, bytes_max)), SegmentOrigin(
        topic, LedgerId(LEDGER)
    )


def measure(case: str, bytes_max: int, seconds: float) -> dict[str, float]:
    """Figures of one case."""
    runs, origin = make(case, bytes_max)
    raw_bytes = sum(run.size_bytes for run in runs)
    messages = sum(run.message_count for run in runs)
    write_s = read_s = float("inf")
    file_bytes = 0
    done = 0
    end_s = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while done < RUNS_MIN or time.monotonic() < end_s:
            path = Path(folder) / f"segment-{done}"
            begun_s = time.process_time()
            summary = write_segment(runs, origin, str(path))
            write_s = min(write_s, time.process_time() - begun_s)
            file_bytes = summary.file_bytes
            source = LocalFile(str(path))
            reader = SegmentReader(source)
            begun_s = time.process_time()
            entry = 0
            while entry <= summary.last_entry:
                entry = reader.entries(LedgerId(LEDGER), entry, READ_BYTES)[-1].last_entry + 1
            read_s = min(read_s, time.process_time() - begun_s)
            source.close()
            path.unlink()
            done += 1
    name = case.replace("-", "_")
    return {
        f"{name}_write_mb_per_cpu_s": raw_bytes / 1e6 / write_s,
        f"{name}_write_messages_per_cpu_s": messages / write_s,
        f"{name}_read_mb_per_cpu_s": raw_bytes / 1e6 / read_s,
        f"{name}_read_messages_per_cpu_s": messages / read_s,
        f"{name}_file_percent_of_raw": 100 * file_bytes / raw_bytes,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "case", nargs="?", default="", help=f"one of {', '.join(CASES)}; all when none is given"
    )
    parser.add_argument("--mib", type=int, default=64, help="MiB of entries in a case (64)")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured time of all cases (30)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    cases = [arguments.case] if arguments.case else list(CASES)
    results: dict[str, float] = {}
    for case in cases:
        results |= measure(case, arguments.mib << 20, arguments.seconds / len(cases))
    print(json.dumps(machine.describe(Path(tempfile.gettempdir()))))
    for name, value in results.items():
        print(f"{name:44} {value:14,.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()

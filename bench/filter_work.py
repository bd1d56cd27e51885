"""How long does the worst filter expression keep the event loop, and how long is a piece of it beside it?

    python -m bench.filter_work [--runs N]

For each input that is made to be slow: the largest entries that the loop still judges by itself, as many of
them as one go takes, and what the go took; the best of some runs, in milliseconds. "Beside": the longest
piece between two steps of entries at their bounds, which are judged in a thread. Exits with 1 when a go takes
more than `GO_MS_MAX`, or a piece more than `PIECE_MS_MAX`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from magnetar.base.clock import ManualClock
from magnetar.broker.filters.entry_filter import METADATA_BYTES_MAX
from magnetar.broker.filters.expression import NAME, PROPERTY
from magnetar.broker.filters.judge import Judge
from magnetar.broker.filters.rules import FilterRules
from magnetar.client.compression import compress
from magnetar.runtime.interruption import TookTooLongError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

GO_MS_MAX: Final = 1.0
PIECE_MS_MAX: Final = 4.0
_ENTRIES: Final = 500

Make = Callable[[int], tuple[bytes, int]]
"""An entry with about so many bytes of metadata, or of messages with their metadata; and its messages."""


class Slow(NamedTuple):
    """An expression with entries that are slow for it."""

    name: str
    text: str
    make: Make
    size_max: int = METADATA_BYTES_MAX - 200


def _metadata(**properties: str) -> pb.MessageMetadata:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    for name, value in properties.items():
        metadata.properties.add(key=name, value=value)
    return metadata


def texts(ratio: float, char: str = "A") -> Make:
    """A text, and one that nearly is in it: as long as `ratio` of it, another character in its middle."""

    def make(size: int) -> tuple[bytes, int]:
        chars = int(size / (1 + ratio) / len(char.encode()))
        part = int(chars * ratio)
        odd = char * (part // 2) + "B" + char * max(0, part - part // 2 - 1)
        return build_entry(_metadata(a=char * chars, b=odd), b"x"), 1

    return make


def tiny_properties(size: int) -> tuple[bytes, int]:
    """As many properties as there is room for, all different."""
    metadata = _metadata()
    for number in range(size // 9):
        metadata.properties.add(key=f"{number:x}", value="")
    return build_entry(metadata, b"x"), 1


def _batch(
    size: int, kind: pb.CompressionType, single: pb.SingleMessageMetadata, body: bytes
) -> tuple[bytes, int]:
    single.payload_size = len(body)
    each = 4 + single.ByteSize() + len(body)
    count = max(1, min(5_000, size // each))
    plain = build_batch([(single, body)] * count)
    metadata = _metadata()
    metadata.num_messages_in_batch, metadata.uncompressed_size = count, len(plain)
    metadata.compression = kind
    return build_entry(metadata, compress(kind, plain)), count


def empty_messages(size: int) -> tuple[bytes, int]:
    """A batch of messages without anything."""
    return _batch(size, pb.NONE, pb.SingleMessageMetadata(), b"")


def told_messages(size: int) -> tuple[bytes, int]:
    """A compressed batch of messages with several properties."""
    single = pb.SingleMessageMetadata(properties=[pb.KeyValue(key=f"{n}", value="") for n in range(20)])
    return _batch(size, pb.ZLIB, single, b"")


def one_told(size: int) -> tuple[bytes, int]:
    """A batch with one message of many properties."""
    single = pb.SingleMessageMetadata(
        properties=[pb.KeyValue(key=f"{n:x}", value="") for n in range(size // 9)]
    )
    return _batch(size, pb.NONE, single, b"")


def bodies(size: int) -> tuple[bytes, int]:
    """A compressed batch of two large messages."""
    return _batch(size, pb.ZLIB, pb.SingleMessageMetadata(), bytes(max(1, size // 2 - 20)))


_SEARCH: Final = "contains(properties.a, properties.b)"
_LOWERED: Final = "lower(" * 60 + "properties.a" + ")" * 60 + ' == "x"'
SLOW: Final = (
    Slow("names alone", 'key == "k"', tiny_properties),
    Slow("names and many parts", " or ".join(['key == "k"'] * 45), tiny_properties),
    Slow("properties compared", " == ".join(["properties"] * 60), tiny_properties),
    Slow("a search, a half", _SEARCH, texts(0.5)),
    Slow("a search, a fifth", _SEARCH, texts(0.2)),
    Slow("a search, a hundredth", _SEARCH, texts(0.01)),
    Slow("searches in a row", "properties.b in " * 30 + "properties.a", texts(0.5)),
    Slow("searches of wide characters", " or ".join([_SEARCH] * 22), texts(0.5, "\U0001f600")),
    Slow("a constant", f'contains(properties.a, "{"A" * 900 + "B" + "A" * 900}")', texts(0.01)),
    Slow("lowered", _LOWERED, texts(0.01, "\u0130")),
    Slow("numbers", " or ".join(["number(properties.a) == 1"] * 20), texts(0.01, "1")),
    Slow("a batch of nothing", 'key == "k"', empty_messages, 1 << 20),
    Slow("a batch, many parts", " or ".join(['properties.x == "k"'] * 35), empty_messages, 1 << 20),
    Slow("a batch of properties", 'properties.a == "k"', told_messages, 1 << 20),
    Slow("a batch of properties, searched", " or ".join([_SEARCH] * 22), told_messages, 1 << 20),
    Slow("a batch with one message", 'properties.a == "k"', one_told, 1 << 20),
    Slow("a batch of large messages", 'key == "k"', bodies, 1 << 20),
)


class _Steps:
    """Measures the longest time between two steps."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last_s = self._began_s = time.thread_time()

    def step(self) -> None:
        """A step of the work. Raises TookTooLongError after a second: it may go on for minutes."""
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        if now_s - self._began_s > 1:
            raise TookTooLongError("that is enough")
        self._last_s = time.thread_time()

    def longest(self) -> float:
        """In seconds, with what came behind the last step."""
        return max(self.longest_s, time.thread_time() - self._last_s)


def _judge(text: str) -> Judge:
    return Judge(FilterRules(names=(NAME,)), "t", "s", lambda: {PROPERTY: text}, ManualClock())


def in_the_loop(slow: Slow, runs: int) -> tuple[int, int, float]:
    """Size and number of the slowest entries of a go, and its milliseconds."""
    worst = (0, 0, 0.0)
    size = 16
    while size <= slow.size_max:
        entry, count = slow.make(size)
        entries, counts = [entry] * _ENTRIES, [count] * _ENTRIES
        judge = _judge(slow.text)
        judged = len(judge.verdicts(entries, counts))
        if not judged:
            break
        best_s = min(_timed(partial(judge.verdicts, entries, counts)) for _ in range(runs))
        worst = max(worst, (size, judged, best_s * 1_000), key=lambda each: each[2])
        size = max(size + 1, int(size * 1.3))
    return worst


def _timed(work: Callable[[], object]) -> float:
    began_s = time.thread_time()
    work()
    return time.thread_time() - began_s


def beside(slow: Slow, runs: int) -> float:
    """The longest piece in milliseconds of an entry at its bounds."""
    entry, count = slow.make(slow.size_max)
    best_s = 60.0
    for _ in range(runs):
        steps = _Steps()
        _judge(slow.text).foresee([entry], [count], steps)
        best_s = min(best_s, steps.longest())
    return best_s * 1_000


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.filter_work")
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    broken = False
    print(f"{'input':34} {'bytes':>8} {'entries':>8} {'a go, ms':>9} {'beside, ms':>11}")
    for slow in SLOW:
        size, judged, go_ms = in_the_loop(slow, runs)
        piece_ms = beside(slow, min(runs, 3))
        broken |= go_ms > GO_MS_MAX or piece_ms > PIECE_MS_MAX
        print(f"{slow.name:34} {size:8} {judged:8} {go_ms:9.2f} {piece_ms:11.2f}", flush=True)
    sys.exit(int(broken))


if __name__ == "__main__":
    main()

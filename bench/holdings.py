"""What a broker keeps in memory of each topic, subscription, producer and consumer: what a limit is to be of.

    python -m bench holdings                     5,000 of each, a fresh broker for each
    python -m bench holdings --count 20000

Resident memory of the broker before and after so many were made, divided by their number. One connection at
a time makes them and stays open.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench import frames as f
from bench import protobuf as pb
from bench.broker import Cpus, magnetar_command, started
from bench.connection import Connection
from bench.hostile import resident_mb
from bench.scan import BrokerAnswerError

_BLOCK: Final = 50
_PER_CONNECTION: Final = 1_000
_TOPIC: Final = "persistent://public/default/held"


def _producer(topic: str, number: int) -> bytes:
    body = pb.field(1, topic) + pb.field(2, number) + pb.field(3, number)
    return f.command_frame(f.PRODUCER, body)


def _consumer(topic: str, subscription: str, number: int) -> bytes:
    body = pb.field(1, topic) + pb.field(2, subscription) + pb.field(3, 1) + pb.field(4, number)
    return f.command_frame(f.SUBSCRIBE, body + pb.field(5, number) + pb.field(6, f"consumer-{number}"))


def _left(frame: bytes, number: int) -> bytes:
    """What `frame` opens, closed again: only what it made stays."""
    kind = f.CLOSE_PRODUCER if frame[9] == f.PRODUCER else f.CLOSE_CONSUMER
    return f.command_frame(kind, pb.field(1, number) + pb.field(2, number))


KINDS: Final[dict[str, tuple[Callable[[int], bytes], bool]]] = {
    "topic, loaded": (lambda n: _producer(f"{_TOPIC}-{n}", n), True),
    "subscription": (lambda n: _consumer(_TOPIC, f"s-{n}", n), True),
    "producer": (lambda n: _producer(_TOPIC, n), False),
    "consumer": (lambda n: _consumer(_TOPIC, "s", n), False),
}
"""How each is made, and whether the producer or consumer by which it was made leaves it."""


class _Maker(Connection):
    def make(self, request: Callable[[int], bytes], numbers: Sequence[int], *, leave: bool) -> None:
        """Makes them, with `_BLOCK` requests at a time. Raises BrokerAnswerError for a refusal."""
        for at in range(0, len(numbers), _BLOCK):
            opening = [request(number) for number in numbers[at : at + _BLOCK]]
            self._answered(opening)
            if leave:
                pairs = zip(opening, numbers[at : at + _BLOCK], strict=True)
                self._answered([_left(frame, number) for frame, number in pairs])

    def _answered(self, frames: Sequence[bytes]) -> None:
        self.socket.sendall(b"".join(frames))
        answers = len(frames)
        while answers:
            kind, fields = self._receive()
            if kind == f.ERROR:
                raise BrokerAnswerError(pb.text(fields, 3))
            answers -= kind in (f.SUCCESS, f.PRODUCER_SUCCESS)


def measure(kind: str, count: int) -> float:
    """Bytes of one."""
    request, leave = KINDS[kind]
    with (
        tempfile.TemporaryDirectory(prefix="bench-holdings-") as scratch,
        started(magnetar_command(), Path(scratch), Cpus(None, None)) as broker,
    ):
        connections = [_Maker(broker.service_url)]
        connections[0].make(request, range(1, _BLOCK + 1), leave=leave)
        before_mb = resident_mb(broker.pid)
        for first in range(_BLOCK + 1, _BLOCK + 1 + count, _PER_CONNECTION):
            connections.append(_Maker(broker.service_url))
            last = min(first + _PER_CONNECTION, _BLOCK + 1 + count)
            connections[-1].make(request, range(first, last), leave=leave)
        bytes_of_one = (resident_mb(broker.pid) - before_mb) * (1 << 20) / count
        for connection in connections:
            connection.socket.close()
        return bytes_of_one


def main(words: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench holdings", description="What does one of each cost a broker?"
    )
    parser.add_argument("--count", type=int, default=5_000, help="of each (5,000)")
    count = parser.parse_args(words).count
    for kind in KINDS:
        print(f"{kind:<16}{measure(kind, count) / 1024:>8.1f} KiB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

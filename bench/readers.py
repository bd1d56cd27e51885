"""How long does everything stand still when very many readers end?

    python -m bench readers                          20,000 readers of 100 topics on 20 connections
    python -m bench readers --readers 2000 --json FILE

Readers are opened, closed by command, opened again, and lost with their connections. Told are the longest
garbage collection of the broker, how many walked everything, its CPU and its memory, after each step.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench import frames as f
from bench.broker import Broker, Cpus, magnetar_command, started
from bench.connection import Connection
from bench.meter import MEGA, Meter
from bench.protobuf import field
from bench.scan import Command, refuse, split_command

_TOPICS: Final = 100
_TOGETHER: Final = 200
"""Commands of one connection that wait for their answers."""
_FIRST_ENTRY: Final = field(1, (1 << 64) - 1) + field(2, (1 << 64) - 1)
_PAUSE: Final = re.compile(r"^magnetar_gc_pause_seconds_max (\S+)", re.MULTILINE)
_STALL: Final = re.compile(r"^magnetar_loop_stall_seconds_max (\S+)", re.MULTILINE)
_FULL: Final = re.compile(r'^python_gc_collections_total{generation="2"} (\S+)', re.MULTILINE)
_SETTLE_S: Final = 12.0
"""The broker looks every ten seconds whether everything is to be collected. That it did *not* collect has no
sign to wait for, hence a time: that of one look, and a little more."""


class Readers:
    """Readers that share one connection."""

    def __init__(self, service_url: str, numbers: range) -> None:
        self._numbers = numbers
        self._connection = Connection(service_url, deadline_s=120)

    def _asked(self, frames: Iterator[bytes]) -> None:
        """Sends commands, some at a time, and waits for all answers. Raises BrokerAnswerError."""
        opened, pending = self._connection.socket, bytearray()
        for first in range(0, len(self._numbers), _TOGETHER):
            count = min(_TOGETHER, len(self._numbers) - first)
            opened.sendall(b"".join(next(frames) for _ in range(count)))
            while count:
                pending += opened.recv(1 << 16)
                while len(pending) >= 4 and len(pending) >= (end := int.from_bytes(pending[:4], "big") + 4):
                    kind, fields, _ = split_command(memoryview(bytes(pending[:end])))
                    refuse(Command(kind, fields))
                    count -= kind == f.SUCCESS
                    del pending[:end]

    def open(self) -> None:
        """All of them, each from the first entry on."""
        self._asked(
            f.command_frame(
                f.SUBSCRIBE,
                field(1, f"persistent://public/default/read-{number % _TOPICS}")
                + field(2, f"reader-{number}")
                + field(3, 0)
                + field(4, number)
                + field(5, number)
                + field(8, 0)
                + field(9, _FIRST_ENTRY),
            )
            for number in self._numbers
        )

    def close(self) -> None:
        """By command, each."""
        self._asked(
            f.command_frame(f.CLOSE_CONSUMER, field(1, number) + field(2, number)) for number in self._numbers
        )

    def lose(self) -> None:
        """With the connection."""
        self._connection.socket.close()


def look(broker: Broker, meter: Meter, step: str) -> dict[str, float]:
    """What the broker says of itself now."""
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    pause, stall, full = (pattern.search(text) for pattern in (_PAUSE, _STALL, _FULL))
    assert pause
    assert stall
    assert full
    found = {
        "pause_max_ms": float(pause[1]) * 1000,
        "stall_max_ms": float(stall[1]) * 1000,
        "full_collections": float(full[1]),
        "cpu_s": meter.now().broker_cpu_s,
        "resident_mb": meter.rss_bytes() / MEGA,
    }
    print(f"{step:<22}" + "".join(f"{value:>18.1f}" for value in found.values()), flush=True)
    return found


def measure(broker: Broker, readers: int, connections: int) -> dict[str, dict[str, float]]:
    """All steps against this broker."""
    meter = Meter(broker.pid)
    found = {"at first": look(broker, meter, "at first")}
    share = readers // connections
    for way in (Readers.close, Readers.lose):
        crowd = [
            Readers(broker.service_url, range(1 + n * share, 1 + (n + 1) * share)) for n in range(connections)
        ]
        for one in crowd:
            one.open()
        for step, act in ((f"opened, {way.__name__} next", None), (way.__name__, way)):
            if act is not None:
                for one in crowd:
                    act(one)
            time.sleep(_SETTLE_S)
            found[step] = look(broker, meter, step)
        for one in crowd:
            one.lose()
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench readers", description="Very many readers end.")
    parser.add_argument("--readers", type=int, default=20_000)
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write everything measured there")
    options = parser.parse_args(words)
    names = ("longest pause ms", "stall ms", "full collections", "CPU s", "resident MB")
    print(f"{'':<22}" + "".join(f"{name:>18}" for name in names))
    with (
        tempfile.TemporaryDirectory(prefix="bench-readers-") as scratch,
        started(magnetar_command(), Path(scratch), Cpus(None, None)) as broker,
    ):
        found = measure(broker, options.readers, options.connections)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a million delayed messages cost, how exact delivery is meanwhile, and what a restart finds.

    python -m bench.delayed --seconds S --json FILE [--messages N]

Starts brokers of its own, as the last part stops one. A Shared subscription has one consumer. First messages
without a time are published and taken, at full speed; then as many with times one to two hours ahead, which
are held back; then some that come within seconds, and how late they are is measured; then the broker is
killed and started again on its data, and the time until a message comes is measured.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from bench import protobuf as pb
from bench.broker import Broker, Cpus, magnetar_command, started
from bench.frames import FIRST_SEQUENCE_ID
from bench.group import SHARED, Group, Member, Sender, send_frame
from bench.proc import usage

TOPIC: Final = "persistent://public/default/delayed"
PAYLOAD: Final = bytes(128)
BLOCK: Final = 1_000
BLOCKS: Final = 50
OUTSTANDING: Final = 10_000
EXACT: Final = 500
"""Messages whose lateness is measured."""
CPUS: Final = Cpus(None, None)

Blocks = list[tuple[bytes, int]]


def now_ms() -> int:
    """Unix ms."""
    return time.time_ns() // 1_000_000


def blocks(name: str, due: Callable[[int], int]) -> Blocks:
    """Blocks of frames; `due` gives a message's time, 0 for none."""
    return [
        (
            b"".join(
                send_frame(
                    name, PAYLOAD, sequence_id=FIRST_SEQUENCE_ID + i, deliver_at_ms=due(block * BLOCK + i)
                )
                for i in range(BLOCK)
            ),
            BLOCK,
        )
        for block in range(BLOCKS)
    ]


def publish(group: Group, frames: Blocks, messages: int, taken: Callable[[], int]) -> float:
    """Publishes so many messages; seconds until the last receipt. `taken`: how many are done with."""
    sender = group.sender
    assert sender is not None
    first, given = sender.sent, 0

    def next_block() -> tuple[bytes, int] | None:
        nonlocal given
        if given >= messages or sender.sent - first - taken() > OUTSTANDING - BLOCK:
            return None
        block = frames[given // BLOCK % BLOCKS]
        given += block[1]
        return block

    start_s = time.perf_counter()
    while sender.acknowledged - first < messages or taken() < messages:
        group.turn(next_block)
    return sender.last_at_s - start_s


def lateness(group: Group, name: str) -> list[float]:
    """How late messages come that are due within the next seconds, in ms."""
    late: list[float] = []
    due = [now_ms() + 1_000 + i * 10 for i in range(EXACT)]
    frames = b"".join(
        send_frame(name, PAYLOAD, sequence_id=FIRST_SEQUENCE_ID + i, deliver_at_ms=each)
        for i, each in enumerate(due)
    )
    given = False

    def next_block() -> tuple[bytes, int] | None:
        nonlocal given
        if given:
            return None
        given = True
        return frames, EXACT

    def each(frame: memoryview) -> None:
        data = bytes(frame)
        at = data.find(b"\x0e\x01") + 6
        size = int.from_bytes(data[at : at + 4], "big")
        metadata = pb.decode(data[at + 4 : at + 4 + size])
        late.append(time.time_ns() / 1e6 - pb.number(metadata, 19))

    group.each = each
    deadline_s = time.perf_counter() + 30
    while len(late) < EXACT and time.perf_counter() < deadline_s:
        group.turn(next_block)
    group.each = None
    return sorted(late)


def _since(member: Member, first: int) -> int:
    return member.received - first


def _acknowledged_since(sender: Sender, first: int) -> int:
    return sender.acknowledged - first


def before_the_crash(broker: Broker, messages: int) -> dict[str, float]:
    """Rates, memory, exactness."""
    assert broker.pid is not None
    sender = Sender(broker.service_url, TOPIC)
    member = Member(broker.service_url, TOPIC, "s", SHARED, (1,), BLOCK)
    group = Group(sender, [member])
    spread = random.Random(1)
    plain = blocks(sender.name, lambda _: 0)
    delayed = blocks(sender.name, lambda _: now_ms() + 3_600_000 + spread.randrange(3_600_000))
    result: dict[str, float] = {}
    # The first round fills caches and buffers, so that what follows is the index alone.
    for name, frames in (("warm_up", plain), ("undelayed", plain), ("delayed", delayed)):
        first = member.received
        before = usage(broker.pid)
        done = sender.acknowledged
        if frames is plain:
            took_s = publish(group, frames, messages, partial(_since, member, first))
        else:
            took_s = publish(group, frames, messages, partial(_acknowledged_since, sender, done))
            held_until_s = time.perf_counter() + 3.0
            while time.perf_counter() < held_until_s:
                group.turn(lambda: None)
        after = usage(broker.pid)
        result[f"{name}_messages_per_s"] = messages / took_s
        result[f"{name}_us_per_message"] = (after.cpu_s - before.cpu_s) / messages * 1e6
        result[f"{name}_memory_mb"] = (after.rss_bytes - before.rss_bytes) / 1e6
    late = lateness(group, sender.name)
    result["delayed_came"] = float(len(late))
    if late:
        result |= {"late_median_ms": late[len(late) // 2], "late_max_ms": late[-1], "early_max_ms": -late[0]}
    return result


def after_the_crash(broker: Broker, messages: int) -> dict[str, float]:
    """How long until a message passes the held ones."""
    assert broker.pid is not None
    before = usage(broker.pid)
    start_s = time.perf_counter()
    sender = Sender(broker.service_url, TOPIC)
    member = Member(broker.service_url, TOPIC, "s", SHARED, (1,), BLOCK)
    group = Group(sender, [member])
    frame = send_frame(sender.name, PAYLOAD)
    given = False

    def next_block() -> tuple[bytes, int] | None:
        nonlocal given
        if given:
            return None
        given = True
        return frame, 1

    while not member.received:
        group.turn(next_block)
    took_s = time.perf_counter() - start_s
    after = usage(broker.pid)
    return {
        "restart_first_message_s": took_s,
        "restart_us_per_held": (after.cpu_s - before.cpu_s) / messages * 1e6,
        "restart_memory_mb": (after.rss_bytes - before.rss_bytes) / 1e6,
    }


def main() -> None:
    """Measures and writes what it found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0, help="not used: the work is what is given")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with started(magnetar_command(), folder, CPUS, stop_signal=signal.SIGKILL) as broker:
            found = before_the_crash(broker, options.messages)
        with started(magnetar_command(), folder, CPUS) as broker:
            found |= after_the_crash(broker, options.messages)
    options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

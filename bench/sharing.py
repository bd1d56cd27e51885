"""How fast one subscription hands out messages to many consumers that share it.

    python -m bench.sharing --seconds S --service-url URL [--broker-pid PID] --json FILE [--kinds NAME,NAME]

For each kind of consumers: a producer whose messages are not batched, 128 bytes with one of 1,000 keys, as
fast as consumers take and acknowledge them; never more than OUTSTANDING messages on their way. The kinds
fan_out are of batches of 100 messages, from one producer to one subscription and to ten.
"""

from __future__ import annotations

import argparse
import json
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.frames import FIRST_SEQUENCE_ID
from bench.group import KEY_SHARED, SHARED, Group, Member, Sender, send_frame
from bench.proc import usage

OUTSTANDING: Final = 10_000
QUEUE: Final = 1_000
"""Permits of each consumer, as the official clients give by default."""
KEYS: Final = 1_000
PAYLOAD: Final = bytes(128)
CONNECTIONS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of subscription, and its consumers."""

    kind: int
    consumers: int
    subscriptions: int = 1
    messages: int = 1
    """Messages of a batch."""


KINDS: Final = {
    "shared_10": Kind(SHARED, 10),
    "shared_20": Kind(SHARED, 20),
    "shared_1000": Kind(SHARED, 1_000),
    "key_shared_20": Kind(KEY_SHARED, 20),
    "fan_out_1": Kind(SHARED, 1, messages=100),
    "fan_out_10": Kind(SHARED, 1, subscriptions=10, messages=100),
}


def measure(url: str, pid: int | None, kind: Kind, seconds: float) -> dict[str, float]:
    """Rates and costs of one kind of consumers on a topic of its own."""
    topic = f"persistent://public/default/sharing-{secrets.token_hex(6)}"
    sender = Sender(url, topic)
    connections = min(kind.consumers, CONNECTIONS_MAX)
    queue = QUEUE if kind.messages == 1 else 100 * QUEUE
    members = [
        Member(url, topic, f"s{subscription}", kind.kind, range(first, kind.consumers, connections), queue)
        for subscription in range(kind.subscriptions)
        for first in range(connections)
    ]
    # Frames of consecutive keys, as 1,000 producers of one key each would interleave.
    count = KEYS if kind.messages == 1 else 20
    block = b"".join(
        send_frame(
            sender.name, PAYLOAD, sequence_id=FIRST_SEQUENCE_ID + i, key=f"key-{i}", messages=kind.messages
        )
        if kind.messages == 1
        else send_frame(sender.name, PAYLOAD, sequence_id=FIRST_SEQUENCE_ID + i, messages=kind.messages)
        for i in range(count)
    )
    group = Group(sender, members, messages_per_entry=kind.messages)
    outstanding = max(count, OUTSTANDING // kind.messages)

    def next_block() -> tuple[bytes, int] | None:
        slowest = min(group.received // kind.subscriptions, sender.acknowledged)
        return (block, count) if sender.sent - slowest + count <= outstanding else None

    def run(duration_s: float) -> None:
        end_s = time.perf_counter() + duration_s
        while time.perf_counter() < end_s:
            group.turn(next_block)

    run(1.0)
    before = usage(pid) if pid else None
    received, start_s, own_s = group.received, time.perf_counter(), time.process_time()
    run(seconds)
    took_s = time.perf_counter() - start_s
    delivered = (group.received - received) * kind.messages
    result = {
        "deliveries_per_s": delivered / took_s,
        "messages_per_s": delivered / took_s / kind.subscriptions,
        "generator_cpu": (time.process_time() - own_s) / took_s,
    }
    if before is not None and pid:
        result["us_per_delivery"] = (usage(pid).cpu_s - before.cpu_s) / max(1, delivered) * 1e6
    for member in members:
        member.socket.close()
    sender.socket.close()
    return result


def main() -> None:
    """Measures the kinds named, one after the other, and writes what it found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--service-url", required=True)
    parser.add_argument("--http-url", default="")
    parser.add_argument("--broker-pid", type=int)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    found = {
        name: measure(options.service_url, options.broker_pid, KINDS[name], options.seconds)
        for name in options.kinds.split(",")
    }
    options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

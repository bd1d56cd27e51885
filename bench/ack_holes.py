"""How long a subscription with many acknowledged holes takes to come back after a kill.

    python -m bench.ack_holes --seconds S --json FILE [--holes N]

Starts brokers of its own. Every second message of a Shared subscription is acknowledged, the broker is killed
and started again; then the time from the first command on the topic until the first message comes is
measured, and what comes again is compared with what was not acknowledged.
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.broker import Broker, Cpus, magnetar_command, started
from bench.frames import FIRST_SEQUENCE_ID
from bench.group import SHARED, Group, Member, Sender, send_frame
from bench.protobuf import data, decode, number
from bench.scan import split_command

TOPIC: Final = "persistent://public/default/holes"
BLOCK: Final = 1_000
CONSUMERS: Final = (1, 2, 3, 4)
ACKS: Final = 500
"""Acknowledgements of one command."""
CPUS: Final = Cpus(None, None)
DEADLINE_S: Final = 120.0
SETTLE_S: Final = 1.0
"""Seconds after which acknowledgements are taken as durable; the measurement does not wait for their
answers."""


class Taken:
    """Ids of the messages that came, as bytes."""

    def __init__(self) -> None:
        self.ids: list[bytes] = []
        self.first_s = 0.0

    def __call__(self, frame: memoryview) -> None:
        if not self.ids:
            self.first_s = time.perf_counter()
        _, fields, _ = split_command(frame)
        self.ids.append(data(fields, 2))

    @property
    def entries(self) -> set[tuple[int, int]]:
        """Ledger and entry of each."""
        found = [decode(each) for each in self.ids]
        return {(number(fields, 1), number(fields, 2)) for fields in found}


def take(group: Group, taken: Taken, messages: int) -> None:
    """Takes so many messages. Raises TimeoutError."""
    deadline_s = time.perf_counter() + DEADLINE_S
    while len(taken.ids) < messages:
        group.turn(lambda: None)
        if time.perf_counter() > deadline_s:
            raise TimeoutError(f"{len(taken.ids)} of {messages} messages came")


def member(broker: Broker, messages: int) -> Member:
    """Consumers with permits for everything: one may hold no more than 50,000 unacknowledged."""
    return Member(broker.service_url, TOPIC, "s", SHARED, CONSUMERS, 2 * messages)


def make_holes(broker: Broker, holes: int) -> set[tuple[int, int]]:
    """Publishes twice as many messages and acknowledges every second; what is left."""
    sender = Sender(broker.service_url, TOPIC)
    taken = Taken()
    consumer = member(broker, 2 * holes)
    group = Group(sender, [consumer], each=taken, ack=False)
    frames = b"".join(
        send_frame(sender.name, bytes(100), sequence_id=FIRST_SEQUENCE_ID + i) for i in range(BLOCK)
    )
    given = 0

    def next_block() -> tuple[bytes, int] | None:
        nonlocal given
        if given >= 2 * holes or given - len(taken.ids) > 10 * BLOCK:
            return None
        given += BLOCK
        return frames, BLOCK

    # What is held unacknowledged is limited, so that every second one must go as they come.
    done = 0
    left: list[bytes] = []
    while done < 2 * holes:
        group.turn(next_block)
        while len(taken.ids) - done >= 2 * ACKS:
            part = taken.ids[done : done + 2 * ACKS]
            consumer.acknowledge(1, part[1::2])
            left += part[::2]
            done += 2 * ACKS
    end_s = time.perf_counter() + SETTLE_S
    while time.perf_counter() < end_s:
        group.turn(lambda: None)
    taken.ids = left
    return taken.entries


def main() -> None:
    """Measures and writes what it found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0, help="not used: the work is what is given")
    parser.add_argument("--holes", type=int, default=100_000)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    holes = options.holes
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        command = [*magnetar_command()]
        with started(command, folder, CPUS, stop_signal=signal.SIGKILL) as broker:
            left = make_holes(broker, holes)
        with started(command, folder, CPUS) as broker:
            start_s = time.perf_counter()
            taken = Taken()
            group = Group(None, [member(broker, holes)], each=taken, ack=True)
            take(group, taken, 1)
            first_s = taken.first_s - start_s
            take(group, taken, holes)
            found = {
                "first_message_s": first_s,
                "all_messages_s": time.perf_counter() - start_s,
                "acknowledged_came_again": float(len(taken.entries - left)),
                "left_did_not_come": float(len(left - taken.entries)),
            }
    options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

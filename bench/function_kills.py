"""Do kills lose or double anything? kill -9 of functions, of the broker beside them, and of both.

    python -m bench function-kills                 60 kills, a third of each kind
    python -m bench function-kills --kills 200 --seed 7

Three functions with EFFECTIVELY_ONCE read one topic: one takes numbers one by one, one takes lists, one is
async. Numbers from 0 on are published, each once, and each has a receipt before the next kill. In the end
each output must hold each number once and in order, and each state their count and sum. Kills come at random
moments, while the functions work.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import functions, machine
from bench.broker import Broker, Cpus, magnetar_command, started
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.consumer import EntryConsumer
from magnetar.client.producer import Producer
from magnetar.client.transforming import messages_of
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

CODE: Final = """
import asyncio
import time

def counted(input: int, context):
    time.sleep(0.0005)  # work, so that kills come in the middle of calls
    context.incr_counter("calls", 1)
    context.incr_counter("sum", input)
    return input

def listed(batch: list[int], context):
    time.sleep(0.002)  # as above
    context.incr_counter("calls", len(batch))
    context.incr_counter("sum", sum(batch))
    return batch

async def later(input: int, context):
    await asyncio.sleep(0.001 * (input % 7))
    context.incr_counter("calls", 1)
    context.incr_counter("sum", input)
    return input
"""
NAMES: Final = ("counted", "listed", "later")
IN: Final = "kills-in"
PER_ROUND: Final = 200
PER_ENTRY: Final = 10
PAUSE_S_MAX: Final = 0.4
QUIET_S: Final = 1.0
DEADLINE_S: Final = 180.0
KINDS: Final = ("function", "broker", "both")


class Kills:
    """One run."""

    def __init__(self, folder: Path, kills: int, seed: int) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._left = kills
        self.done = dict.fromkeys(KINDS, 0)
        self.published = 0

    def run(self) -> list[str]:
        """Kills, and what is wrong in the end; empty: nothing is."""
        first = True
        while self._left:
            with started(
                magnetar_command(), self._folder, Cpus(None, None), stop_signal=signal.SIGKILL
            ) as broker:
                if first:
                    self._create(broker)
                    first = False
                self._life(broker)
        with started(magnetar_command(), self._folder, Cpus(None, None)) as broker:
            return self._wrong(broker)

    def _create(self, broker: Broker) -> None:
        made = functions.Functions(broker, CODE)
        for name in NAMES:
            made.create(name, name, IN, f"kills-{name}", processingGuarantees="EFFECTIVELY_ONCE")
        for name in NAMES:
            functions.wait_until(lambda: bool(made.status(name)["running"]), "the start of a function")  # noqa: B023  # called at once

    def _life(self, broker: Broker) -> None:
        """Kills of functions, until the broker is to be killed, which is the end of its life."""
        with Client(broker.service_url, admin_url=broker.http_url) as client:
            while self._left:
                self._publish(client)
                time.sleep(self._chance.uniform(0.0, PAUSE_S_MAX))  # the moment of the kill, by the seed
                kind = self._chance.choice(KINDS)
                self._left -= 1
                self.done[kind] += 1
                if kind != "broker":
                    for pid in functions.instances(broker.pid or 0):
                        _kill(pid)
                if kind != "function":
                    return

    def _publish(self, client: Client) -> None:
        """The next numbers; each has a receipt when it returns."""
        with Producer(client, TopicName.parse(IN)) as producer:
            for first in range(self.published, self.published + PER_ROUND, PER_ENTRY):
                values = range(first, first + PER_ENTRY)
                metadata = pb.MessageMetadata(
                    producer_name=producer.name,
                    sequence_id=first,
                    publish_time=int(time.time() * 1000),
                    num_messages_in_batch=PER_ENTRY,
                )
                singles = [(pb.SingleMessageMetadata(), b"%d" % value) for value in values]
                producer.send(first, build_entry(metadata, build_batch(singles)), PER_ENTRY)
            producer.flush()
        self.published += PER_ROUND

    def _wrong(self, broker: Broker) -> list[str]:
        found: list[str] = []
        asked = functions.Functions(broker)
        wanted = list(range(self.published))
        with Client(broker.service_url, admin_url=broker.http_url) as client:
            for name in NAMES:
                got = self._output(client, f"kills-{name}")
                if got != wanted:
                    lost, doubled = len(set(wanted) - set(got)), len(got) - len(set(got))
                    order = "" if got == sorted(got) else ", not in order"
                    found.append(f"output of {name}: {lost} lost, {doubled} doubled{order}")
                state = {key: asked.number(name, key) for key in ("calls", "sum")}
                if state != {"calls": len(wanted), "sum": sum(wanted)}:
                    found.append(f"state of {name}: {state}, of {len(wanted)} numbers with sum {sum(wanted)}")
        return found

    def _output(self, client: Client, topic: str) -> list[int]:
        """All numbers of a topic, once as many are there as were published and no more come."""
        name = TopicName.parse(topic)
        got: list[int] = []
        with EntryConsumer(client, name, "look", create_topic=True) as consumer:
            consumer.ask(1_000_000)
            until_s = time.perf_counter() + DEADLINE_S
            while len(got) < self.published and time.perf_counter() < until_s:
                got += [int(message.value) for message in messages_of(name, consumer.read(0.5))]
            return got + [int(message.value) for message in messages_of(name, consumer.read(QUIET_S))]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # It was ending by itself.
        return


def main(words: Sequence[str] | None = None) -> int:
    """0 when nothing is lost or doubled, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m bench function-kills", description="Do kills lose anything?"
    )
    parser.add_argument("--kills", type=int, default=60, help="kills of functions, broker, or both (60)")
    parser.add_argument("--seed", type=int, default=None, help="of the moments and kinds (one by chance)")
    given = parser.parse_args(words)
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="bench-function-kills-") as scratch:
        print(" · ".join(str(value) for value in machine.describe(Path(scratch)).values()), flush=True)
        kills = Kills(Path(scratch), given.kills, seed)
        began_s = time.perf_counter()
        wrong = kills.run()
    done = ", ".join(f"{count} of {kind}" for kind, count in kills.done.items())
    print(
        f"{sum(kills.done.values())} kills ({done}) in {time.perf_counter() - began_s:.0f} s, seed {seed}:"
        f" {kills.published:,} numbers through {len(NAMES)} functions"
    )
    print("\n".join(wrong) if wrong else "nothing lost, nothing doubled, in outputs and state")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

"""What transactions take in several brokers at once, with the load in turn: also on a busy machine.

    python -m bench transactions rate-batched --turns 10 --peers pulsar
    python -m bench transactions rate-batched rate --turns 10 --beside HEAD~1

All brokers run on one core, and a client program for each on the other one. A slice of load goes to one
broker after the other, in changing order; the others, and their clients, stand still (SIGSTOP) meanwhile.
Magnetar with the sources of a commit is one of them (`--beside`). The first slices warm up and do not count.
CPU is that of the broker's process tree in its slices.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench import machine, proc
from bench.broker import SOURCE_VARIABLE, Broker, Cpus, magnetar_command, started
from bench.compare import sources
from bench.meter import Meter
from bench.modules import ModuleFailedError
from bench.report import figure, markdown_table, text_table
from bench.run import BROKEN
from bench.transactions import ON, Driver, JavaLoad, Metrics, driver, environment_with, priority, pulsar

RATES: Final = ("rate-batched", "rate")
MAGNETAR: Final = "Magnetar"
_SHOWN: Final = (
    "transactions_per_cpu_s",
    "us_per_transaction",
    "transactions_per_s",
    "broker_cpu_share",
    "transaction_p50_ms",
    "transaction_p99_ms",
)


@dataclass
class Side:
    """A broker and its client."""

    name: str
    broker: Broker
    java: JavaLoad
    turns: list[Metrics] = field(default_factory=list)

    def turn(self, seconds: float) -> Metrics:
        """A slice of load. Raises ModuleFailedError when the client failed."""
        self._signal(signal.SIGCONT)
        meter = Meter(self.broker.pid)
        start = meter.now()
        found = self.java.turn(seconds)
        end = meter.now()
        self._signal(signal.SIGSTOP)
        count, cpu_s, wall_s = (
            found["transactions"],
            end.broker_cpu_s - start.broker_cpu_s,
            end.wall_s - start.wall_s,
        )
        return found | {
            "transactions_per_s": count / wall_s,
            "transactions_per_cpu_s": count / cpu_s,
            "us_per_transaction": cpu_s / count * 1e6,
            "broker_cpu_share": cpu_s / wall_s,
        }

    def _signal(self, number: signal.Signals) -> None:
        assert self.broker.pid is not None
        for root in (self.broker.pid, self.java.pid):
            for stat in proc.tree(root, proc.read_all()):
                os.kill(stat.pid, number)

    def wake(self) -> None:
        """For its end."""
        self._signal(signal.SIGCONT)


@contextmanager
def _brokers(options: argparse.Namespace, cpus: Cpus) -> Iterator[dict[str, Broker]]:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-transactions-")))

        def magnetar(name: str) -> Broker:
            folder = scratch / f"magnetar-{len(found)}"
            folder.mkdir()
            command = priority(options) + magnetar_command()
            return stack.enter_context(started(command, folder, cpus, settings={ON: "true"}))

        found: dict[str, Broker] = {}
        found[MAGNETAR] = magnetar(MAGNETAR)
        if options.beside:
            tree = stack.enter_context(sources(options.beside, scratch))
            with environment_with(SOURCE_VARIABLE, str(tree)):
                found[f"{MAGNETAR} {options.beside}"] = magnetar(options.beside)
        if options.peers:
            server = pulsar(options.pulsar)
            server.fetch(options.programs / "pulsar")
            folder = scratch / "pulsar"
            folder.mkdir()
            found[server.name] = stack.enter_context(
                server.started(options.programs / "pulsar", folder, cpus, durable=True)
            )
        yield found


def _measure(options: argparse.Namespace, cpus: Cpus, program: Driver, kind: str) -> list[Side]:
    with _brokers(options, cpus) as brokers, ExitStack() as stack:
        sides = []
        for name, broker in brokers.items():
            words = ["turns", broker.service_url, str(options.lanes), str(kind == "rate-batched").lower()]
            java = stack.enter_context(JavaLoad(program, words))
            list(java.lines("BEGIN"))
            side = Side(name, broker, java)
            sides.append(side)
            stack.callback(side.wake)
        for side in sides:
            warm_up_s = options.warm_up if side.name.startswith(MAGNETAR) else options.jvm_warm_up
            until = time.monotonic() + warm_up_s
            while time.monotonic() < until:
                side.turn(options.seconds)
        for number in range(options.turns):
            for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
                side.turns.append(side.turn(options.seconds))
                print(
                    f"  {kind} {number + 1}/{options.turns} {side.name}: {_line(side.turns[-1])}",
                    file=sys.stderr,
                )
    return sides


def _line(found: Metrics) -> str:
    return f"{found['transactions_per_cpu_s']:,.0f} per CPU s, {found['transactions_per_s']:,.0f}/s"


def rows(kind: str, turns: dict[str, list[Metrics]]) -> list[list[str]]:
    """Medians of each side, and the first side's as a multiple of each other one's in the same round."""
    out = []
    first = next(iter(turns.values()))
    for metric in _SHOWN:
        row = [kind, metric]
        for found in turns.values():
            values = sorted(each[metric] for each in found)
            row.append(f"{figure(middle(values))} ({figure(values[0])} to {figure(values[-1])})")
        for found in list(turns.values())[1:]:
            pairs = zip(first, found, strict=True)
            row.append(f"{middle([ours[metric] / theirs[metric] for ours, theirs in pairs]):.2f}")
        out.append(row)
    return out


def middle(values: list[float]) -> float:
    """The median."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def in_turns(options: argparse.Namespace, cpus: Cpus) -> int:
    """0 when every slice worked, 1 when one did not."""
    kinds = [kind for kind in options.kind if kind in RATES]
    if cpus.generator is not None:
        os.sched_setaffinity(0, {cpus.generator})
    table: list[list[str]] = []
    runs: dict[str, dict[str, list[Metrics]]] = {}
    failed = False
    with driver(options.programs, priority(options), cpus.generator) as program:
        for kind in kinds:
            try:
                turns = {side.name: side.turns for side in _measure(options, cpus, program, kind)}
            except (*BROKEN, ModuleFailedError) as error:
                failed = True
                print(f"  failed: {error}", file=sys.stderr, flush=True)
                continue
            if not table:
                others = [f"{next(iter(turns))} : {name}" for name in list(turns)[1:]]
                table.append(["kind", "figure", *turns, *others])
            table += rows(kind, turns)
            runs[kind] = turns
    described = machine.describe(Path(tempfile.gettempdir()))
    slices = f"medians of {options.turns} slices of {options.seconds:g} s"
    print(f"{described['date']} · {described['cpu']} · {slices}\n")
    print((markdown_table if options.markdown else text_table)(table))
    if options.json:
        options.json.write_text(json.dumps({"machine": described, "runs": runs}, indent=1) + "\n")
    return int(failed)

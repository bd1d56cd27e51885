"""What transactions cost: commit latency, rate, CPU, the cost for other clients, recovery.

    python -m bench transactions                            every kind, Magnetar alone
    python -m bench transactions --peers pulsar             Apache Pulsar with transactions beside it
    python -m bench transactions rate-batched recovery      some of them: see KINDS
    python -m bench transactions plain --before COMMIT      plain clients: also the sources of a commit
    python -m bench transactions rate-batched --turns 10 --peers pulsar --beside COMMIT
                                                            the load in turn: see transaction_turns.py

The driver is the official Java client (`transaction_load/TransactionLoad.java`). Both brokers sync before
they acknowledge. A commit's latency is the time of END_TXN, after all receipts; a transaction's the time from
its beginning to its end. Recovery: killed with open transactions in a hundred topics, from exec until the
first of them is committed, and until one in every topic is and its message is read; beside it the same topics
without transactions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench import machine
from bench.broker import SOURCE_VARIABLE, Broker, Cpus, magnetar_command, pinned, started
from bench.compare import sources
from bench.histogram import median_metrics
from bench.meter import Meter
from bench.modules import ModuleFailedError
from bench.peers.servers import SERVERS, Pulsar, fetch_jars, run_tool
from bench.publisher import Publisher
from bench.pulsar_driver import PulsarDriver
from bench.report import figure, markdown_table, text_table
from bench.run import BROKEN, new_topic
from bench.throughput import publish_for

PROGRAM: Final = Path(__file__).with_name("transaction_load") / "TransactionLoad.java"
CLIENT: Final = [("org.apache.pulsar", "pulsar-client", "4.2.4")]
ON: Final = "MAGNETAR_TRANSACTIONS"
LANES: Final = 64
KINDS: Final = {
    "latency": "one message, one transaction at a time",
    "rate-batched": f"10 messages in a batch, {LANES} at once",
    "rate": f"10 messages one by one, {LANES} at once",
    "plain": "publish and no transactions",
    "recovery": "killed with open transactions",
}
TARGETS: Final = {
    "latency": "commit p50 ≤ 2 ms, p99 ≤ 8 ms",
    "rate-batched": "≥ 4,000/s on one core; ≥ 3 × Pulsar per CPU s",
    "rate": "≥ 4,000/s on one core; ≥ 3 × Pulsar per CPU s",
    "plain": "≤ 1 % dearer",
    "recovery": "≤ 2 s",
}
OPEN: Final = 10_000

Metrics = dict[str, float]


@dataclass(frozen=True)
class Driver:
    """How the program is started."""

    command: Sequence[str]
    cpu: int | None


@contextmanager
def driver(programs: Path, priority: Sequence[str], cpu: int | None) -> Iterator[Driver]:
    """The program, compiled. Raises BrokerFailedError when its client cannot be fetched."""
    fetch_jars(programs / "java-client", None, CLIENT)
    jars = programs / "java-client" / "lib" / "*"
    with tempfile.TemporaryDirectory(prefix="bench-transactions-") as classes:
        run_tool(["javac", "-nowarn", "-cp", str(jars), "-d", classes, str(PROGRAM)], Path(classes))
        java = ["java", "-Xms256m", "-Xmx1g", "-cp", f"{classes}{os.pathsep}{jars}", PROGRAM.stem]
        yield Driver([*priority, *java], cpu)


class JavaLoad:
    """The program, running. It says when its measured time begins and ends."""

    def __init__(self, driver: Driver, words: Sequence[str]) -> None:
        with pinned(driver.cpu):
            self._process = subprocess.Popen(
                [*driver.command, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

    def __enter__(self) -> JavaLoad:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        """The process of the virtual machine."""
        return self._process.pid

    def turn(self, seconds: float) -> Metrics:
        """In turns: load for so long. Raises ModuleFailedError when it fails."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return _said(self.lines("END"))

    def lines(self, last: str | None = None) -> Iterator[str]:
        """What it says, up to `last`, or to its end. Raises ModuleFailedError when it fails."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == last:
                return
            # Its logger writes there too.
            yield line.strip()
        _, errors = self._process.communicate()
        if self._process.returncode or last is not None:
            tail = "\n".join(errors.splitlines()[-15:])
            raise ModuleFailedError(f"TransactionLoad ended with {self._process.returncode}:\n{tail}")


def _said(lines: Iterable[str]) -> Metrics:
    said: Metrics = {}
    for line in lines:
        name, _, value = line.partition(" ")
        if name.endswith("_ms") or name == "transactions":
            said[name] = float(value)
    return said


def load(broker: Broker, program: Driver, words: Sequence[str]) -> Metrics:
    """Latencies as the program says them, rates and costs of its measured time."""
    meter = Meter(broker.pid)
    with JavaLoad(program, words) as java:
        list(java.lines("BEGIN"))
        start = meter.now()
        list(java.lines("END"))
        end = meter.now()
        said = _said(java.lines())
    count, cpu_s = said["transactions"], end.broker_cpu_s - start.broker_cpu_s
    said["transactions_per_s"] = count / (end.wall_s - start.wall_s)
    said["broker_cpu_share"] = cpu_s / (end.wall_s - start.wall_s)
    said["transactions_per_cpu_s"] = count / cpu_s
    return said


def plain(broker: Broker, seconds: float) -> Metrics:
    """Messages of 1 KiB, each its own entry."""
    lane = PulsarDriver(broker.service_url).lane(new_topic(), payload_bytes=1024, messages_per_entry=1)
    found = publish_for([Publisher(lane)], Meter(broker.pid), warm_up_s=2.0, seconds=seconds)
    return {name: found[name] for name in ("messages_per_s", "broker_cpu_s_per_million")}


# -- the brokers -----------------------------------------------------------------------------------


@contextmanager
def environment_with(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _magnetar(command: Sequence[str], cpus: Cpus, *, on: bool) -> Iterator[Broker]:
    with (
        tempfile.TemporaryDirectory(prefix="bench-transactions-") as scratch,
        environment_with(ON, str(on).lower()),
        started(command, Path(scratch), cpus) as broker,
    ):
        yield broker


def pulsar(settings: Sequence[str] = ()) -> Pulsar:
    """Pulsar with transactions, and with these settings as KEY=VALUE."""
    found = SERVERS["pulsar"]
    assert isinstance(found, Pulsar)
    more = dict(each.split("=", 1) for each in settings)
    return replace(found, settings={"transactionCoordinatorEnabled": "true", **more})


def load_words(kind: str, url: str, options: argparse.Namespace, warm_up_s: float) -> list[str]:
    """Arguments of the program. `options` has `seconds` and `lanes`."""
    words = [url, str(warm_up_s), str(options.seconds)]
    if kind == "latency":
        return [kind, *words]
    return ["rate", *words, str(options.lanes), str(kind == "rate-batched").lower()]


def run_magnetar(options: argparse.Namespace, command: Sequence[str], cpus: Cpus) -> dict[str, Metrics]:
    """Each kind on a broker of its own."""
    found: dict[str, Metrics] = {}
    for kind in options.kind:
        print(f"  {kind}", file=sys.stderr, flush=True)
        if kind == "plain":
            found |= _run_plain(options, command, cpus)
        elif kind == "recovery":
            from bench.transaction_recovery import recovery

            for count in (0, OPEN):
                with (
                    tempfile.TemporaryDirectory(prefix="bench-transactions-") as scratch,
                    environment_with(ON, "true"),
                ):
                    name = f"recovery, {count:,} open"
                    found[name] = recovery(options.driver, Path(scratch), cpus, command, count)
        else:
            with _magnetar(command, cpus, on=True) as broker:
                words = load_words(kind, broker.service_url, options, options.warm_up)
                found[kind] = load(broker, options.driver, words)
    return found


def _run_plain(options: argparse.Namespace, command: Sequence[str], cpus: Cpus) -> dict[str, Metrics]:
    found: dict[str, Metrics] = {}
    sides: list[tuple[str, bool, str | None]] = [("plain, off", False, None), ("plain, on", True, None)]
    with tempfile.TemporaryDirectory(prefix="bench-transactions-") as scratch:
        if options.before:
            sides.insert(0, (f"plain, {options.before}", False, options.before))
        for name, on, commit in sides:
            if commit is None:
                with _magnetar(command, cpus, on=on) as broker:
                    found[name] = plain(broker, options.seconds)
                continue
            with sources(commit, Path(scratch)) as tree, environment_with(SOURCE_VARIABLE, str(tree)):
                earlier = priority(options) + magnetar_command()
                with _magnetar(earlier, cpus, on=False) as broker:
                    found[name] = plain(broker, options.seconds)
    return found


def run_pulsar(options: argparse.Namespace, cpus: Cpus) -> dict[str, Metrics]:
    """All kinds of load on one start, which is warm before the first. Its recovery is not measured: it has
    open transactions in logs that are read when a client connects."""
    found: dict[str, Metrics] = {}
    server = pulsar(options.pulsar)
    with (
        tempfile.TemporaryDirectory(prefix="bench-transactions-") as scratch,
        server.started(options.programs / "pulsar", Path(scratch), cpus, durable=True) as broker,
    ):
        warm_up_s = options.jvm_warm_up
        for kind in options.kind:
            if kind in ("plain", "recovery"):
                continue
            print(f"  {kind}", file=sys.stderr, flush=True)
            words = load_words(kind, broker.service_url, options, warm_up_s)
            found[kind] = load(broker, options.driver, words)
            warm_up_s = max(options.warm_up, options.jvm_warm_up / 3)
    return found


def priority(options: argparse.Namespace) -> list[str]:
    return ["chrt", "-f", str(options.priority)] if options.priority else []


# -- the command -----------------------------------------------------------------------------------


def arguments() -> argparse.ArgumentParser:
    """All options."""
    default = os.environ.get("MAGNETAR_BENCH_PROGRAMS", "~/.cache/magnetar-bench")
    parser = argparse.ArgumentParser(
        prog="python -m bench transactions", description="What do transactions cost?"
    )
    parser.add_argument("kind", nargs="*", default=list(KINDS), help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--peers", default="", help='"pulsar": measure it too')
    parser.add_argument("--seconds", type=float, default=8.0, help="measured time of a case (8)")
    parser.add_argument("--warm-up", type=float, default=6.0, help="seconds of load before it counts (6)")
    parser.add_argument("--jvm-warm-up", type=float, default=45.0, help="the same of a broker in Java (45)")
    parser.add_argument("--lanes", type=int, default=LANES, help=f"transactions at once ({LANES})")
    parser.add_argument("--runs", type=int, default=3, help="runs whose median is shown (3)")
    parser.add_argument("--turns", type=int, default=0, help="slices of each broker, in turn (rate)")
    parser.add_argument("--beside", metavar="COMMIT", help="with turns: its sources beside the tree")
    parser.add_argument("--pulsar", metavar="KEY=VALUE", action="append", default=[], help="its settings")
    parser.add_argument("--cpus", default="0,1", help='cores of broker and generator; "free" pins nothing')
    parser.add_argument("--before", metavar="COMMIT", help="plain: measure its sources too")
    parser.add_argument(
        "--priority",
        type=int,
        default=0,
        help="run the broker as a real-time process (chrt -f): a busy machine",
    )
    parser.add_argument("--programs", type=Path, default=Path(default).expanduser())
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every run to PATH")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    return parser


def main() -> int:
    """0 when every kind worked, 1 when one did not."""
    from bench.__main__ import parse_cpus

    parser = arguments()
    options = parser.parse_args()
    if unknown := set(options.kind) - KINDS.keys():
        parser.error(f"no {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    if options.peers not in ("", "pulsar"):
        parser.error("the one peer with the same client is pulsar")
    cpus = parse_cpus(options.cpus)
    command = priority(options) + magnetar_command()
    runs: dict[str, list[dict[str, Metrics]]] = {"Magnetar": []}
    if options.peers:
        pulsar().fetch(options.programs / "pulsar")
        runs[pulsar().name] = []
    if cpus.generator is not None:
        os.sched_setaffinity(0, {cpus.generator})
    failed = False
    if options.turns:
        from bench.transaction_turns import in_turns

        return in_turns(options, cpus)
    with driver(options.programs, priority(options), cpus.generator) as options.driver:
        for number in range(1, options.runs + 1):
            for name, done in runs.items():
                print(f"run {number}/{options.runs}  {name}", file=sys.stderr, flush=True)
                try:
                    ours = name == "Magnetar"
                    done.append(run_magnetar(options, command, cpus) if ours else run_pulsar(options, cpus))
                except BROKEN as error:
                    failed = True
                    print(f"  failed: {error}", file=sys.stderr, flush=True)
    described = machine.describe(Path(tempfile.gettempdir()))
    print(f"{described['date']} · {described['cpu']} · median of {options.runs} run(s)\n")
    print((markdown_table if options.markdown else text_table)(_rows(runs)))
    if options.json:
        options.json.write_text(json.dumps({"machine": described, "runs": runs}, indent=1) + "\n")
    return int(failed)


def _rows(runs: dict[str, list[dict[str, Metrics]]]) -> list[list[str]]:
    rows = [["kind", "figure", *runs, "to reach"]]
    kinds = dict.fromkeys(kind for each in runs.values() for run in each for kind in run)
    for kind in kinds:
        medians = [median_metrics([run[kind] for run in each if kind in run]) for each in runs.values()]
        goal = TARGETS[kind.partition(",")[0]]
        for name in dict.fromkeys(name for median in medians for name in median):
            rows.append([kind, name, *(figure(median.get(name)) for median in medians), goal])
            kind = goal = ""
    return rows


if __name__ == "__main__":
    sys.exit(main())

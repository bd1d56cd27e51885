"""Command line: `python -m bench clients [CASE…]`: the official clients against Magnetar, Pulsar beside it.

Paced cases are open loops: message i is due at start + i / rate, and its latency counts from then. Runs of
all brokers are interleaved. Pulsar is started once, warmed up, and stands still (SIGSTOP) while others are
measured.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench import machine, proc
from bench.__main__ import parse_cpus
from bench.broker import SOURCE_VARIABLE, Broker, BrokerFailedError, Cpus, magnetar_command, pinned, started
from bench.clients import counters
from bench.clients.cases import CASES, Case, chosen
from bench.clients.programs import CLIENTS, without_bytecode_switch
from bench.compare import sources
from bench.device import sync_histogram
from bench.histogram import median_metrics
from bench.peers.servers import SERVERS
from bench.replicated import environment
from bench.report import figure, markdown_table, text_table
from bench.run import new_topic

Metrics = dict[str, float]
MAGNETAR: Final = "magnetar"
PULSAR: Final = "pulsar"
WARM_UP_CASE: Final = Case(name="warm-up", rate_per_s=5_000)
AHEAD_SCRIPT: Final = 'echo -20 2>/dev/null > /proc/self/autogroup; exec "$@"'
AHEAD: Final = ("setsid", "nice", "-n", "-20", "sh", "-c", AHEAD_SCRIPT, "sh")
"""Before the command of a program that gets its core before the others of the machine. Not a real-time class:
there the threads of a runtime that spin would never let each other go on."""
COLUMNS: Final[Mapping[str, str]] = {
    "messages_per_s": "msg/s",
    "us_per_message": "CPU µs/msg",
    "cores": "cores",
    "p50_ms": "p50 ms",
    "p99_ms": "p99",
    "p99.9_ms": "p99.9",
    "p99.99_ms": "p99.99",
    "end_to_end_p50_ms": "e2e p50",
    "end_to_end_p99_ms": "e2e p99",
    "late_p99_ms": "late p99",
    "commits_per_s": "commits/s",
    "us_per_commit": "CPU µs/commit",
    "switches_per_message": "switches/msg",
    "system_calls_per_message": "syscalls/msg",
    "others_cores": "others' cores",
}


@dataclass(frozen=True)
class Options:
    """How to measure."""

    seconds: float
    warm_up_s: float
    cpus: Cpus
    data_folder: Path | None
    system_calls: bool
    ahead: bool
    programs: Path

    @property
    def before(self) -> list[str]:
        """What stands before a program's command."""
        return list(AHEAD) if self.ahead else []


def arguments() -> argparse.ArgumentParser:
    """All options."""
    parser = argparse.ArgumentParser(prog="python -m bench clients", description=__doc__)
    parser.add_argument("case", nargs="*", default=["go-*"], help="names or patterns of cases (go-*)")
    parser.add_argument("--list", action="store_true", help="show the cases")
    parser.add_argument("--peers", default="", help=f"measured beside it: {PULSAR}")
    parser.add_argument(
        "--beside", default="", metavar="REV", help="commits, or folders of sources, beside the tree"
    )
    parser.add_argument(
        "--twins", action="store_true", help="the compiled twin and the pure one (after ./dev build)"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="measured time of a case (8)")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds of load before it counts (3)")
    parser.add_argument(
        "--jvm-warm-up", type=float, default=40.0, help="seconds of load for Pulsar's start (40)"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs, interleaved, whose median is shown (3)")
    parser.add_argument("--cpus", default="0,1", help='cores of broker and client; "free" pins nothing')
    parser.add_argument("--data-dir", type=Path, help="folder for the brokers' data")
    parser.add_argument(
        "--system-calls", action="store_true", help="count system calls too (perf, tracepoints)"
    )
    parser.add_argument(
        "--ahead",
        action="store_true",
        help="nice -20 for broker and client: for a busy machine; needs the right",
    )
    parser.add_argument("--programs", type=Path, default=Path("~/.cache/magnetar-bench").expanduser())
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every run to PATH")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    return parser


def measure(broker: Broker, case: Case, command: list[str], options: Options) -> Metrics:
    """One run of one case. Raises BrokerFailedError when the client fails."""
    url, topic = broker.service_url, new_topic()
    full = [*options.before, *command, "--url", url, "--topic", topic, *case.options()]
    full += ["--warm-up", str(options.warm_up_s), "--seconds", str(options.seconds)]
    with tempfile.TemporaryFile("w+") as errors:
        with pinned(options.cpus.generator):
            client = subprocess.Popen(
                full, stdout=subprocess.PIPE, stderr=errors, text=True, env=without_bytecode_switch()
            )
        try:
            return _measured(broker, client, options)
        except EOFError:
            client.wait()
            errors.seek(0)
            raise BrokerFailedError(f"the client failed: {errors.read().strip()[-2000:]}") from None
        finally:
            client.kill()
            client.wait()


def _line(client: subprocess.Popen[str], start: str) -> str:
    """The next line that begins so; the others are logs. Raises EOFError when there is none."""
    assert client.stdout is not None
    while not (line := client.stdout.readline()).startswith(start):
        if not line:
            raise EOFError(start)
    return line


def _measured(broker: Broker, client: subprocess.Popen[str], options: Options) -> Metrics:
    assert broker.pid is not None
    _line(client, "begin")
    calls = counters.SystemCalls(broker.pid) if options.system_calls else None
    before, client_before = counters.read(broker, commits_first=True), _cpu_s(client.pid)
    _line(client, "end")
    after, client_after = counters.read(broker, commits_first=False), _cpu_s(client.pid)
    counted = calls.stop() if calls else {}
    found: Metrics = json.loads(_line(client, "{"))
    messages, seconds = found["messages"], options.seconds
    cpu_s, client_cpu_s = after.cpu_s - before.cpu_s, client_after - client_before
    commits = counted.get("syncs", after.commits - before.commits)
    out = {
        **found,
        "messages_per_s": messages / seconds,
        "cores": cpu_s / seconds,
        "client_cores": client_cpu_s / seconds,
        "commits_per_s": commits / seconds,
        "others_cores": (after.machine_cpu_s - before.machine_cpu_s - cpu_s - client_cpu_s) / seconds,
    }
    if commits:
        out["us_per_commit"] = cpu_s / commits * 1e6
    if messages:
        out["us_per_message"] = cpu_s / messages * 1e6
        out["switches_per_message"] = (after.switches - before.switches) / messages
        if counted:
            out["system_calls_per_message"] = counted["system_calls"] / messages
    return out


def _cpu_s(pid: int) -> float:
    return sum(stat.cpu_s for stat in proc.tree(pid, proc.read_all()))


class Magnetar:
    """Started afresh for each case."""

    def __init__(self, source: Path | None, *, pure: bool | None = None) -> None:
        self._variables = {} if source is None else {SOURCE_VARIABLE: str(source)}
        if pure is not None:
            self._variables["MAGNETAR_PURE"] = "1" if pure else "0"

    def twin(self) -> str:
        """Which twin runs, as the command itself says: "compiled" or "pure Python", perhaps with a reason.

        Raises BrokerFailedError when there is no such command.
        """
        with environment(self._variables):
            command = magnetar_command()
            asked = [*command[: command.index("standalone")], "--version"]
            said = subprocess.run(asked, capture_output=True, text=True, env=without_bytecode_switch())
        _, opened, twin = said.stdout.strip().removesuffix(")").partition("(")
        if said.returncode or not opened:
            raise BrokerFailedError(f"{' '.join(asked)} does not say which twin runs: {said.stderr.strip()}")
        return twin

    @contextmanager
    def running(self, options: Options) -> Iterator[Broker]:
        """A broker with an empty store."""
        with (
            tempfile.TemporaryDirectory(prefix="magnetar-bench-", dir=options.data_folder) as scratch,
            environment(self._variables),
            started([*options.before, *magnetar_command()], Path(scratch), options.cpus) as broker,
        ):
            yield broker


class Pulsar:
    """Runs all the time, and stands still while others are measured."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        assert self._broker.pid is not None
        os.kill(self._broker.pid, number)

    @contextmanager
    def running(self, options: Options) -> Iterator[Broker]:
        """The broker, awake."""
        self._signal(signal.SIGCONT)
        try:
            yield self._broker
        finally:
            self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """For its end."""
        self._signal(signal.SIGCONT)


def brokers(given: argparse.Namespace, options: Options, stack: ExitStack) -> dict[str, Magnetar | Pulsar]:
    """By name what is measured, in turn."""
    ours = {MAGNETAR: Magnetar(None)}
    if given.twins:
        ours = {"compiled": Magnetar(None, pure=False), "pure": Magnetar(None, pure=True)}
    for beside in filter(None, given.beside.split(",")):
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-beside-")))
        ours[beside] = Magnetar(
            Path(beside).absolute() if "/" in beside else stack.enter_context(sources(beside, folder))
        )
    out = with_twins(ours)
    if given.twins and not any(name.startswith("compiled (compiled") for name in out):
        raise BrokerFailedError("no compiled twin is here: ./dev build makes it")
    if PULSAR in given.peers.split(","):
        print("fetching and starting Pulsar", file=sys.stderr, flush=True)
        server = SERVERS[PULSAR]
        server.fetch(options.programs / PULSAR)
        scratch = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="bench-peer-", dir=options.data_folder)
        )
        broker = stack.enter_context(
            server.started(options.programs / PULSAR, Path(scratch), options.cpus, durable=True)
        )
        assert broker.pid is not None
        if options.ahead:
            counters.prefer(broker.pid)
        warm_s = given.jvm_warm_up / 2
        command = CLIENTS["go"](options.programs)
        for case in (WARM_UP_CASE, replace(WARM_UP_CASE, mode="flood")):
            measure(
                broker, case, command, replace(options, warm_up_s=0.0, seconds=warm_s, system_calls=False)
            )
        out[server.name] = pulsar = Pulsar(broker)
        stack.callback(pulsar.wake)
    return out


def with_twins(servers: Mapping[str, Magnetar]) -> dict[str, Magnetar | Pulsar]:
    """The same with names that say which twin each one runs."""
    return {f"{name} ({server.twin()})": server for name, server in servers.items()}


def rows(results: Mapping[str, Mapping[str, list[Metrics]]]) -> list[list[str]]:
    """One for each case and broker; medians."""
    out = []
    for case, found in results.items():
        for name, runs in found.items():
            median = median_metrics(runs)
            out.append([case, name, *(figure(median.get(column)) for column in COLUMNS)])
    return out


def main() -> int:
    """0 when every run worked, 1 when one did not."""
    # What was started here ends with this program, also when it is told to.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = arguments()
    given = parser.parse_args()
    if given.list:
        for case in CASES:
            print(f"{case.name:32}{' '.join(case.options())}")
        return 0
    try:
        cases, cpus = chosen(given.case), parse_cpus(given.cpus)
    except ValueError as error:
        parser.error(str(error))
    options = Options(
        given.seconds, given.warm_up, cpus, given.data_dir, given.system_calls, given.ahead, given.programs
    )
    commands = {
        name: CLIENTS[name](options.programs) for name in dict.fromkeys(case.client for case in cases)
    }
    folder = options.data_folder or Path(tempfile.gettempdir())
    head: dict[str, object] = {
        "machine": machine.describe(folder),
        "device_sync_ms": sync_histogram(folder, 4096, 2.0),
        "options": {name: str(value) for name, value in vars(given).items()},
    }
    failed = False
    results: dict[str, dict[str, list[Metrics]]] = {}
    with ExitStack() as stack:
        try:
            servers = brokers(given, options, stack)
        except BrokerFailedError as error:
            parser.error(str(error))
        results = {case.name: {name: [] for name in servers} for case in cases}
        for number in range(1, given.runs + 1):
            for case in cases:
                for name, server in servers.items():
                    print(f"run {number}/{given.runs}  {case.name}: {name}", file=sys.stderr, flush=True)
                    try:
                        with server.running(options) as broker:
                            found = measure(broker, case, commands[case.client], options)
                    except (BrokerFailedError, OSError, ValueError) as error:
                        failed = True
                        print(f"  failed: {error}", file=sys.stderr, flush=True)
                        continue
                    results[case.name][name].append(found)
                    if lost := found["failed"] + found.get("unanswered", 0):
                        failed = True
                        print(f"  {lost:.0f} messages failed or had no answer", file=sys.stderr, flush=True)
    if given.json:
        given.json.write_text(json.dumps({**head, "results": results}, indent=1) + "\n")
    print(" · ".join(f"{value}" for value in machine.describe(folder).values()))
    sync = head["device_sync_ms"]
    assert isinstance(sync, dict)
    print(f"append and fdatasync of 4 KiB: p50 {figure(sync['p50_ms'])}, p99 {figure(sync['p99_ms'])} ms")
    table = markdown_table if given.markdown else text_table
    print(table([["case", "broker", *COLUMNS.values()], *rows(results)]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Command line: `python -m bench [SCENARIO…]`, from the root of the project."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from bench import device, machine, report
from bench.broker import Broker, Cpus
from bench.connection import Connection
from bench.memory import PageCache, write_cpu_s_per_gb
from bench.run import Options, run_all
from bench.scan import BrokerAnswerError
from bench.scenario import BadScenarioError, Scenario, choose, load_all

DEVICE_S = 2.0


def arguments() -> argparse.ArgumentParser:
    """All options."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures a broker on this machine.")
    parser.add_argument("scenario", nargs="*", help="names of scenarios; all of them when none is given")
    parser.add_argument("--list", action="store_true", help="show the scenarios and their questions")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything measured to PATH")
    parser.add_argument("--chart", type=Path, metavar="PATH", help="draw rates and latencies (PNG, SVG, PDF)")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--seconds", type=float, default=10.0, help="measured time of a case (10)")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds of load before it counts (3)")
    parser.add_argument("--runs", type=int, default=3, help="runs whose median is shown (3)")
    parser.add_argument(
        "--cpus", default="0,1", help='cores of broker and generator ("0,1"); "free" pins nothing'
    )
    parser.add_argument(
        "--data-dir", type=Path, help="folder for the brokers' data (the system's temporary folder)"
    )
    parser.add_argument(
        "--no-device", action="store_true", help="leave out the device and loopback measurements"
    )
    parser.add_argument(
        "--free-memory",
        action="store_true",
        help="do not fill the page cache first: a virtual machine then pays for fresh memory (memory.py)",
    )
    parser.add_argument(
        "--flames",
        type=Path,
        metavar="FOLDER",
        help="write a flame graph of the broker in each case (py-spy)",
    )
    external = parser.add_argument_group("measure a broker that already runs")
    external.add_argument("--service-url", help="pulsar://HOST:PORT")
    external.add_argument("--http-url", default="", help="http://HOST:PORT")
    external.add_argument(
        "--broker-pid", type=int, help="root of its process tree; without it no costs are known"
    )
    return parser


def parse_cpus(text: str) -> Cpus:
    """Cores of broker and generator; nothing is pinned on a machine without both. Raises ValueError."""
    if text == "free":
        return Cpus(None, None)
    broker, generator = (int(part) for part in text.split(","))
    if not {broker, generator} <= os.sched_getaffinity(0):
        return Cpus(None, None)
    return Cpus(broker, generator)


def size_name(size: int) -> str:
    """4096 is 4 KiB."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def measure_device(folder: Path, cpus: Cpus) -> dict[str, dict[str, dict[str, float]]]:
    """The machine's own limits."""
    print("device and loopback", file=sys.stderr, flush=True)
    return {
        "sync": {
            size_name(size): device.sync_histogram(folder, size, DEVICE_S) for size in device.SYNC_SIZES
        },
        "loopback": {
            size_name(size): device.loopback(
                size, DEVICE_S, sender_cpu=cpus.broker, receiver_cpu=cpus.generator
            )
            for size in device.LOOPBACK_SIZES
        },
    }


def measure_memory(folder: Path, page_cache: PageCache | None) -> dict[str, float]:
    """What copying a GB into the page cache takes, before and after it was filled."""
    print("memory", file=sys.stderr, flush=True)
    found = {"as found": write_cpu_s_per_gb(folder)}
    if page_cache:
        page_cache.fill()
        found["page cache filled"] = write_cpu_s_per_gb(folder)
    return found


def show_list(scenarios: list[Scenario]) -> None:
    """Names, questions, cases."""
    for scenario in scenarios:
        print(f"{scenario.name}\n    {scenario.question}")
        for case in scenario.cases:
            print(f"    - {case.name}")


OTHERS: Final = {
    "peers": "bench.peers.__main__",
    "compare": "bench.compare",
    "guard": "bench.guard",
    "soak": "bench.soak",
    "cli": "bench.command_line",
    "bookies": "bench.bookies",
    "bookie-kills": "bench.bookie_kills",
    "replicated": "bench.replicated",
    "tenants": "bench.tenants",
    "transactions": "bench.transactions",
    "transaction-services": "bench.transaction_services",
    "hostile": "bench.hostile",
    "holdings": "bench.holdings",
    "readers": "bench.readers",
    "clients": "bench.clients.__main__",
    "floor": "bench.floor",
    "functions": "bench.functions",
    "function-kills": "bench.function_kills",
}
"""Words that stand for a program of their own."""


def main() -> int:
    """0 when every case worked or was left out, 1 when one was broken, 2 for a wrong call."""
    if len(sys.argv) > 1 and sys.argv[1] in OTHERS:
        word = sys.argv.pop(1)
        return int(importlib.import_module(OTHERS[word]).main())
    parser = arguments()
    options = parser.parse_args()
    try:
        scenarios = choose(load_all(), options.scenario)
        cpus = parse_cpus(options.cpus)
    except (BadScenarioError, ValueError) as error:
        parser.error(str(error))
    if options.list:
        show_list(scenarios)
        return 0
    external = None
    name = "magnetar standalone, started for each case"
    if options.service_url:
        external = Broker(options.service_url, options.http_url, options.broker_pid)
        try:
            with Connection(options.service_url) as connection:
                name = f"{connection.server_version} at {options.service_url}"
        except (OSError, ValueError, BrokerAnswerError) as error:
            parser.error(f"{options.service_url}: {error}")
    folder = options.data_dir or Path(tempfile.gettempdir())
    with nullcontext() if options.free_memory else PageCache(folder) as page_cache:
        head: dict[str, object] = {
            "machine": machine.describe(folder),
            "broker": name,
            "cpus": "nothing pinned"
            if cpus.broker is None
            else f"broker on core {cpus.broker}, generator on {cpus.generator}",
            "runs": options.runs,
            "seconds": options.seconds,
            "warm_up_s": options.warm_up,
            "device": {} if options.no_device else measure_device(folder, cpus),
            "memory": {} if options.no_device else measure_memory(folder, page_cache),
        }
        if cpus.generator is not None:
            os.sched_setaffinity(0, {cpus.generator})
        results = run_all(
            scenarios,
            Options(
                seconds=options.seconds,
                warm_up_s=options.warm_up,
                cpus=cpus,
                data_folder=folder,
                external=external,
                page_cache=page_cache,
                flames=options.flames,
            ),
            options.runs,
        )
    content = report.document(results, **head)
    if options.json:
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    print(report.render(content, results, markdown=options.markdown))
    if options.chart:
        # Matplotlib takes longer to import than most of the rest to run.
        from bench import chart

        medians = {f"{r.scenario.name}: {c.case.name}": c.median for r in results for c in r.cases}
        chart.draw(options.chart, {name: medians}, report.headline(content))
    return int(any(run.error for result in results for case in result.cases for run in case.runs))


if __name__ == "__main__":
    sys.exit(main())

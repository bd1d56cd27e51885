"""Command line: `python -m bench.peers`, from the root of the project: every broker under the same loops."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench import machine, proc
from bench.__main__ import measure_device, parse_cpus
from bench.broker import Broker
from bench.driver import Driver
from bench.histogram import median_metrics
from bench.memory import PageCache
from bench.meter import MEGA, Meter
from bench.peers.servers import SERVERS, Server
from bench.publisher import Publisher
from bench.pulsar_driver import PulsarDriver
from bench.report import device_tables, figure, markdown_table, text_table
from bench.run import BROKEN, Options, new_topic, with_broker
from bench.scenario import Case, CatchupLoad, LatencyLoad, PublishLoad, Scenario, load_all
from bench.sharing import KINDS, Kind, measure
from bench.throughput import publish_all, publish_for

Metrics = dict[str, float]
CASES: Final = (
    "publish-100b",
    "publish-1k",
    "publish-batched-1k",
    "publish-batched-100b",
    "latency-1k",
    "latency-20k",
    "end-to-end",
    "catchup",
)
"""Scenarios that every broker can run; of each the cases with one producer."""
SHARING: Final = {
    "sharing: 20 consumers of one subscription": KINDS["shared_20"],
    "sharing: 10 subscriptions": KINDS["fan_out_10"],
}
"""What is measured of brokers that speak Pulsar's protocol."""
Wanted = list[tuple[str, Case | Kind]]
START: Final = "start"


def arguments() -> argparse.ArgumentParser:
    """All options."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument(
        "scenario", nargs="*", default=[*CASES, "sharing"], help=f"some of {', '.join(CASES)}, sharing"
    )
    parser.add_argument("--servers", default=",".join(SERVERS), help=f"some of {','.join(SERVERS)}")
    parser.add_argument(
        "--defaults", action="store_true", help="each with its own default instead of sync before receipt"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="measured time of a case (8)")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds of load before a case counts (3)")
    parser.add_argument("--jvm-warm-up", type=float, help="seconds of load after a start (60 for a JVM)")
    parser.add_argument("--runs", type=int, default=3, help="runs, interleaved, whose median is shown (3)")
    parser.add_argument("--cpus", default="0,1", help='cores of broker and generator; "free" pins nothing')
    parser.add_argument("--data-dir", type=Path, help="folder for the brokers' data")
    parser.add_argument("--free-memory", action="store_true", help="do not fill the page cache first")
    parser.add_argument(
        "--programs",
        type=Path,
        default=Path("~/.cache/magnetar-bench").expanduser(),
        help="folder that keeps the fetched programs",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything measured to PATH")
    parser.add_argument("--chart", type=Path, metavar="PATH", help="draw rates and latencies (PNG, SVG, PDF)")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    return parser


def cases(names: list[str]) -> Wanted:
    """The cases to run, named by scenario and case."""
    chosen: list[Scenario] = [scenario for scenario in load_all() if scenario.name in names]
    wanted: Wanted = [
        (f"{scenario.name}: {case.name}", case)
        for scenario in chosen
        for case in scenario.cases
        if (isinstance(case.load, PublishLoad) and case.load.producers == 1)
        or isinstance(case.load, LatencyLoad | CatchupLoad)
    ]
    return wanted + list(SHARING.items()) if "sharing" in names else wanted


def first_receipt(broker: Broker, driver: Driver) -> Metrics:
    """From exec to the first acknowledged message, and the memory after that."""
    meter = Meter(broker.pid)
    publish_all(
        [Publisher(driver.lane(new_topic(), payload_bytes=100, messages_per_entry=1), entries_max=1)], meter
    )
    assert broker.exec_s is not None
    assert broker.pid is not None
    first_s = meter.now().wall_s - broker.exec_s
    usage = proc.usage(broker.pid)
    return {
        "first_acknowledged_s": first_s,
        "broker_rss_mb": usage.rss_bytes / MEGA,
        "threads": float(usage.threads),
    }


def run_server(
    server: Server,
    programs: Path,
    wanted: Wanted,
    options: Options,
    arguments: argparse.Namespace,
) -> dict[str, Metrics]:
    """All cases on one start of one broker, which is warm before the first."""
    out: dict[str, Metrics] = {}
    with tempfile.TemporaryDirectory(prefix="bench-peer-", dir=options.data_folder) as scratch:
        durable = not arguments.defaults
        with server.started(programs, Path(scratch), options.cpus, durable=durable) as broker:
            driver = server.driver(broker)
            out[START] = first_receipt(broker, driver)
            warm_s = server.warm_up_s if arguments.jvm_warm_up is None else arguments.jvm_warm_up
            for payload, per_entry in ((1024, 100), (1024, 1)):
                lane = driver.lane(new_topic(), payload_bytes=payload, messages_per_entry=per_entry)
                publish_for([Publisher(lane)], Meter(None), warm_up_s=0, seconds=warm_s / 2)
            for name, case in wanted:
                print(f"  {name}", file=sys.stderr, flush=True)
                if options.page_cache:
                    options.page_cache.fill()
                try:
                    if isinstance(case, Kind):
                        if isinstance(driver, PulsarDriver):
                            out[name] = measure(broker.service_url, broker.pid, case, options.seconds)
                        continue
                    assert isinstance(case.load, PublishLoad | LatencyLoad | CatchupLoad)
                    run = with_broker(case.load, options, broker, driver)
                except BROKEN as error:
                    print(f"    failed: {error}", file=sys.stderr, flush=True)
                    continue
                out[name] = run.metrics
                for note in run.notes:
                    print(f"    {note}", file=sys.stderr, flush=True)
                    if note.startswith("not sustained"):
                        out[name] = {"not_sustained_per_s": run.metrics["messages_per_s"]}
    return out


def cell(case: Case | Kind | None, metrics: Metrics | None) -> str:
    """What one broker did in one case."""
    if not metrics:
        return "–"
    if "not_sustained_per_s" in metrics:
        return f"not sustained ({figure(metrics['not_sustained_per_s'])}/s)"
    if case is None:
        return (
            f"{figure(metrics['first_acknowledged_s'])} s · {figure(metrics['broker_rss_mb'])} MB ·"
            f" {figure(metrics['threads'])} threads"
        )
    if isinstance(case, Kind):
        return f"{figure(metrics['deliveries_per_s'])}/s · {figure(metrics.get('us_per_delivery'))} µs"
    if isinstance(case.load, LatencyLoad):
        prefix = "end_to_end_" if case.load.end_to_end else ""
        return " / ".join(figure(metrics[f"{prefix}{name}_ms"]) for name in ("p50", "p99", "p99.9")) + " ms"
    return (
        f"{figure(metrics['messages_per_s'])}/s · {figure(metrics['megabytes_per_s'])} MB/s ·"
        f" {figure(metrics.get('broker_cpu_s_per_million'))} µs"
    )


def main() -> int:
    """0 when every chosen broker ran, 1 when one did not."""
    parser = arguments()
    given = parser.parse_args()
    servers = given.servers.split(",")
    if unknown := [name for name in servers if name not in SERVERS]:
        parser.error(f"no server {', '.join(unknown)}; there are {', '.join(SERVERS)}")
    wanted = cases(given.scenario)
    cpus = parse_cpus(given.cpus)
    folder = given.data_dir or Path(tempfile.gettempdir())
    for name in servers:
        print(f"fetching {SERVERS[name].name}", file=sys.stderr, flush=True)
        SERVERS[name].fetch(given.programs / name)
    device = measure_device(folder, cpus)
    results: dict[str, list[dict[str, Metrics]]] = {name: [] for name in servers}
    page_cache = None if given.free_memory else PageCache(folder)
    options = Options(given.seconds, given.warm_up, cpus, folder, None, page_cache)
    if cpus.generator is not None:
        os.sched_setaffinity(0, {cpus.generator})
    failed = False
    for number in range(1, given.runs + 1):
        for name in servers:
            print(f"run {number}/{given.runs}  {SERVERS[name].name}", file=sys.stderr, flush=True)
            try:
                results[name].append(run_server(SERVERS[name], given.programs / name, wanted, options, given))
            except BROKEN as error:
                failed = True
                print(f"  failed: {error}", file=sys.stderr, flush=True)
    medians = {
        name: {
            case: median_metrics([run[case] for run in runs if case in run])
            for case in dict.fromkeys(case for run in runs for case in run)
        }
        for name, runs in results.items()
    }
    rows = [["case", *(SERVERS[name].name for name in servers)]]
    for case_name, case in [(START, None), *wanted]:
        rows.append([case_name, *(cell(case, medians[name].get(case_name)) for name in servers)])
    described = machine.describe(folder)
    table = markdown_table if given.markdown else text_table
    promise = "each with its own default" if given.defaults else "all sync before they acknowledge"
    headline = (
        f"{described['date']} · {described['cpu']}, {described['cores']} cores, {described['memory_gib']} GiB"
        f" · Linux {described['kernel']} · {promise} · median of {given.runs} run(s) of {given.seconds:g} s"
    )
    print(headline + "\n")
    for title, content in device_tables(device).items():
        print(f"{title}\n\n{table(content)}\n")
    print(table(rows))
    if given.json:
        document = {"machine": described, "durable": not given.defaults, "device": device, "runs": results}
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    if given.chart:
        from bench import chart  # as in bench.__main__

        drawn = {
            SERVERS[name].name: {c: m for c, m in medians[name].items() if c != START} for name in servers
        }
        chart.draw(given.chart, drawn, headline)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

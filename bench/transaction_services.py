"""What does a commit cost on etcd and ZooKeeper, and with a broker of its own?

    python -m bench transaction-services                    standalone, etcd and ZooKeeper
    python -m bench transaction-services etcd --brokers 2   coordinators and topics at two brokers

The load is that of `python -m bench transactions`: the official Java client, which measures a commit from
END_TXN to its answer, after all receipts. Each service is one server on this machine that syncs every write;
messages are on two bookies beside it, two copies. etcd and ZooKeeper are found or fetched as the tests do it
(tests/support/metadata_servers.py). The CPU is that of the first broker alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench import machine
from bench.broker import Broker, Cpus, magnetar_command, started
from bench.histogram import median_metrics
from bench.report import figure, markdown_table, text_table
from bench.run import BROKEN
from bench.transactions import ON, Driver, Metrics, driver, load, load_words

_TESTS: Final = str(Path(__file__).parents[1] / "tests")
if _TESTS not in sys.path:
    sys.path.append(_TESTS)
from support import (  # type: ignore[import-not-found]  # noqa: E402  # needs the path above
    broker_clusters,
)
from support.drivers import NotHereError  # type: ignore[import-not-found]  # noqa: E402  # as above

SERVICES: Final = {
    "standalone": "magnetar standalone, its own metadata and store",
    "etcd": "magnetar broker on etcd, two bookies",
    "zk": "magnetar broker on ZooKeeper, two bookies",
}
KINDS: Final = ("latency", "rate-batched", "rate")


@contextmanager
def _serving(service: str, folder: Path, brokers: int) -> Iterator[Broker]:
    """Brokers with transactions. Raises NotHereError where the service cannot be had."""
    if service == "standalone":
        with started(magnetar_command(), folder, Cpus(None, None), settings={ON: "true"}) as broker:
            yield broker
        return
    with broker_clusters.broker_cluster(folder, kind=service, synced=True) as cluster:
        for _ in range(brokers):
            cluster.start_broker(environment={ON: "true"})
        first = cluster.brokers[0]
        yield Broker(cluster.service_url, first.http_url, first.pid)


def measure(service: str, options: argparse.Namespace, program: Driver) -> dict[str, Metrics]:
    """Each kind of load, one after the other on the same brokers. Raises NotHereError."""
    found: dict[str, Metrics] = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-transactions-") as scratch,
        _serving(service, Path(scratch), options.brokers) as broker,
    ):
        for kind in KINDS:
            print(f"  {service}: {kind}", file=sys.stderr, flush=True)
            found[kind] = load(
                broker, program, load_words(kind, broker.service_url, options, options.warm_up)
            )
    return found


def _rows(runs: dict[str, list[dict[str, Metrics]]]) -> list[list[str]]:
    rows = [["kind", "figure", *runs]]
    for kind in KINDS:
        medians = [median_metrics([run[kind] for run in each]) for each in runs.values()]
        label = kind
        for name in dict.fromkeys(name for median in medians for name in median):
            rows.append([label, name, *(figure(median.get(name)) for median in medians)])
            label = ""
    return rows


def main() -> int:
    """0 when every service was measured, 1 when one failed or cannot be had here."""
    default = os.environ.get("MAGNETAR_BENCH_PROGRAMS", "~/.cache/magnetar-bench")
    parser = argparse.ArgumentParser(
        prog="python -m bench transaction-services",
        description="What does a commit cost on etcd and ZooKeeper?",
    )
    parser.add_argument("service", nargs="*", default=list(SERVICES), help=f"some of {', '.join(SERVICES)}")
    parser.add_argument("--brokers", type=int, default=1, help="on etcd and ZooKeeper (1)")
    parser.add_argument("--seconds", type=float, default=8.0, help="measured time of a case (8)")
    parser.add_argument("--warm-up", type=float, default=6.0, help="seconds of load before it counts (6)")
    parser.add_argument("--lanes", type=int, default=64, help="transactions at once (64)")
    parser.add_argument("--runs", type=int, default=3, help="runs whose median is shown (3)")
    parser.add_argument("--programs", type=Path, default=Path(default).expanduser())
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args()
    if unknown := set(options.service) - SERVICES.keys():
        parser.error(f"no {', '.join(sorted(unknown))}; there are {', '.join(SERVICES)}")
    runs: dict[str, list[dict[str, Metrics]]] = {service: [] for service in options.service}
    failed = False
    with driver(options.programs, (), None) as program:
        for number in range(1, options.runs + 1):
            print(f"run {number}/{options.runs}", file=sys.stderr, flush=True)
            for service, done in runs.items():
                try:
                    done.append(measure(service, options, program))
                except (*BROKEN, NotHereError) as error:
                    failed = True
                    print(f"  {service} failed: {error}", file=sys.stderr, flush=True)
    described = machine.describe(Path(tempfile.gettempdir()))
    load_now = os.getloadavg()[0]
    print(
        f"{described['date']} · {described['cpu']} · median of {options.runs} run(s) · load {load_now:.1f}\n"
    )
    print((markdown_table if options.markdown else text_table)(_rows({k: v for k, v in runs.items() if v})))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m magnetar.demo`: the tour from the command line.

Exit codes: 0 all checks passed; 1 the computations differ or another check failed; 2 something the tour
needs is missing or broke; 130 ended by the user.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from magnetar.runtime.threads import beside

if TYPE_CHECKING:
    from rich.console import Console

    from magnetar.demo.tour import Options, Tour, TourOutcome

_REFRESH_S = 0.2
_CLOSE_S = 25.0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog="magnetar demo",
        description="Replay the flights of 2013 out of New York through a broker, Spark and official "
        "clients, and prove that stream, batch and an independent computation agree.",
    )
    parse.add_argument(
        "--quick", action="store_true", help="one month instead of the year; about a minute on two idle cores"
    )
    parse.add_argument("--json", type=Path, metavar="PATH", help="write the summary there")
    parse.add_argument("--out", type=Path, metavar="DIR", help="folder of all output [./out/demo-<time>]")
    parse.add_argument("--keep", action="store_true", help="leave broker and queries running until Ctrl-C")
    parse.add_argument("--seed", type=int, default=2013, help="other late events and retries [%(default)s]")
    parse.add_argument(
        "--allowed-lateness",
        type=float,
        default=24,
        metavar="HOURS",
        help="later events go to the dead letters; 168 lets all of them land in their window [%(default)s]",
    )
    parse.add_argument(
        "--consumers", type=int, default=3, help="consumers that share the alerts [%(default)s]"
    )
    parse.add_argument("--broker-url", help="use this cluster instead of starting a broker")
    parse.add_argument("--http-url", help="admin address of that cluster")
    return parse


def main(argv: list[str] | None = None) -> int:
    """Run the tour; returns the exit code."""
    parse = parser()
    arguments = parse.parse_args(argv)
    if (arguments.broker_url is None) != (arguments.http_url is None):
        parse.error("--broker-url and --http-url belong together")
    if arguments.consumers < 2:
        parse.error("--consumers: sharing takes at least 2")
    if arguments.allowed_lateness < 0:
        parse.error("--allowed-lateness must not be negative")

    stop = threading.Event()

    def on_signal(signum: int, frame: FrameType | None) -> None:
        if stop.is_set():
            # A second signal ends the process at once; its children end when their pipes close.
            os._exit(130)
        stop.set()

    # Before anything starts: PySpark and the official client bring threads and handlers of their own.
    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    from rich.console import Console

    console = Console(highlight=False)
    try:
        from magnetar.demo.tour import Tour
    except ModuleNotFoundError as missing:
        console.print(f"[red]{missing.name} is not installed.[/] Extra: pip install '.[demo]' in a clone")
        return 2
    from magnetar.demo.display import Display

    options = _options(arguments)
    with Display(console) as display:
        tour = Tour(options, display, stop)
        outcome, error = _watch(tour, stop)
    if outcome is not None:
        _report(console, options, outcome, arguments.json)
        if arguments.keep and not stop.is_set():
            _keep(console, tour, options, stop)
    elif stop.is_set():
        console.print("Stopping.")
    else:
        assert error is not None
        _explain(console, options, error)
    closed = _bounded(tour.close, _CLOSE_S)
    if not closed or (stop.is_set() and outcome is None):
        # Threads of client libraries may still run; they must neither delay nor crash the exit.
        sys.stdout.flush()
        os._exit(130 if stop.is_set() else 2)
    if outcome is None:
        return 2
    return 0 if outcome.summary.agree else 1


def _options(arguments: argparse.Namespace) -> Options:
    from magnetar.demo.scenario import HOUR_MS, Scenario
    from magnetar.demo.topics import DemoCluster
    from magnetar.demo.tour import Options

    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    cluster = None
    if arguments.broker_url is not None:
        cluster = DemoCluster(arguments.broker_url, arguments.http_url, f"public/tour-{stamp}")
    return Options(
        out=(arguments.out or Path("out") / f"demo-{stamp}").absolute(),
        quick=arguments.quick,
        scenario=Scenario(
            seed=arguments.seed, allowed_lateness_ms=round(arguments.allowed_lateness * HOUR_MS)
        ),
        consumers=arguments.consumers,
        cluster=cluster,
    )


def _watch(tour: Tour, stop: threading.Event) -> tuple[TourOutcome | None, BaseException | None]:
    """Run the plot in a thread and the display in this one, which alone receives signals."""
    found: list[TourOutcome] = []
    errors: list[BaseException] = []

    def plot() -> None:
        try:
            found.append(tour.run())
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which reports it
            errors.append(error)

    thread = beside(plot, name="plot")
    while thread.is_alive() and not stop.is_set():
        thread.join(_REFRESH_S)
        if not stop.is_set():
            tour.refresh()
    return (found[0] if found else None), (errors[0] if errors else None)


def _report(console: Console, options: Options, outcome: TourOutcome, json_path: Path | None) -> None:
    from magnetar.demo.report import worst_hours

    summary = outcome.summary
    path = json_path or options.out / "summary.json"
    summary.write(path)
    console.print()
    console.print(worst_hours(outcome.results))
    rows = summary.rows
    console.print(
        f"Rows: stream [bold]{rows['stream']:,}[/], batch [bold]{rows['batch']:,}[/], "
        f"independent [bold]{rows['independent']:,}[/]"
    )
    if not summary.agree:
        console.print("[red bold]THE CHECKS FAILED[/]")
        for sentence in summary.failures:
            console.print(f"  - {sentence}", soft_wrap=True)
        for comparison in outcome.comparisons:
            if not comparison.agree:
                console.print(f"{comparison.left} against {comparison.right}, first rows that differ:")
                console.print(comparison.differing.head(20).to_string(), soft_wrap=True)
        return
    console.print(
        f"[green bold]All equal[/], {summary.lost} events lost, {summary.duplicates_removed:,} of "
        f"{summary.duplicates_sent:,} duplicates removed, {summary.late_rows:,} late events of which "
        f"{summary.dead_letters:,} too late for their window, {summary.alerts['received']:,} alerts in order."
    )
    console.print(
        f"Published {summary.publish_msgs_per_s:,.0f} messages/s, streamed {summary.stream_rows_per_s:,.0f} "
        f"events/s, {summary.duration_s:.0f} s in all."
    )
    console.print(f"Parquet  {summary.parquet}", soft_wrap=True)
    console.print(f"Chart    {summary.chart}", soft_wrap=True)
    console.print(f"Summary  {path}", soft_wrap=True)
    console.print(
        "Next: [bold]--keep[/] leaves everything running to look around; [bold]--allowed-lateness 168[/] "
        "lets every late event land in its window; docs/demo.md explains each step.",
    )


def _explain(console: Console, options: Options, error: BaseException) -> None:
    """Prints one line about the error, and writes all of it, often with long JVM stacks, to a file."""
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "error.log"
    path.write_text("".join(traceback.format_exception(error)))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    console.print("[red bold]The tour broke off:[/]", end=" ")
    console.print(lines[0] if lines else type(error).__name__, soft_wrap=True, markup=False)
    console.print(f"Details  {path}", soft_wrap=True)


def _keep(console: Console, tour: Tour, options: Options, stop: threading.Event) -> None:
    cluster = tour.cluster
    assert cluster is not None
    console.print()
    console.print(f"Still running: broker {cluster.broker_url}, admin {cluster.http_url}", soft_wrap=True)
    console.print(
        f"Topics in {cluster.namespace}. The queries stand: departures and weather in their form that you"
        " publish become alerts and dead letters at once; their windows are closed, so the sums stay."
    )
    console.print("Ctrl-C ends it.")
    while not stop.wait(0.2):
        pass
    console.print("Stopping.")


def _bounded(action: Callable[[], None], timeout_s: float) -> bool:
    """Run `action` in a thread for at most `timeout_s`; whether it ended. Its errors are
    ignored, as the process ends.
    """
    deadline = time.monotonic() + timeout_s
    thread = beside(action, name="close")
    while thread.is_alive() and time.monotonic() < deadline:
        thread.join(0.1)
    return not thread.is_alive()


if __name__ == "__main__":
    sys.exit(main())

"""Command line: `python -m bench compare A B [SCENARIO…]`: two commits under the same load, in turn.

A and B are what git knows: a commit, a branch, a tag; `.` is the tree as it lies here. Only the product's
sources are taken from them; the generator, Python and the packages are those of this environment.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench import machine
from bench.__main__ import parse_cpus
from bench.broker import SOURCE_VARIABLE
from bench.histogram import median_metrics
from bench.memory import PageCache
from bench.report import figure, higher_is_better, markdown_table, text_table
from bench.run import Options, run_case
from bench.scenario import Case, choose, load_all

DEFAULT: Final = ["publish-100b", "publish-1k", "publish-batched-1k", "latency-1k", "catchup"]
SHOWN: Final = (
    "broker_cpu_s_per_million",
    "messages_per_s",
    "p50_ms",
    "p99_ms",
    "end_to_end_p99_ms",
    "first_acknowledged_s",
    "broker_rss_mb",
)
"""Metrics of the table; all are in the JSON."""


@contextmanager
def sources(name: str, folder: Path) -> Iterator[Path]:
    """The folder `src` of a commit, checked out in a tree of its own; ValueError for an unknown one."""
    if name == ".":
        yield Path("src").absolute()
        return
    tree = folder / name.replace("/", "-")
    git = ["git", "worktree"]
    done = subprocess.run(
        [*git, "add", "--detach", str(tree), name], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ValueError(f"git knows no {name}: {done.stderr.strip().splitlines()[-1]}")
    try:
        yield tree / "src"
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], capture_output=True, check=False)


def arguments() -> argparse.ArgumentParser:
    """All options."""
    parser = argparse.ArgumentParser(prog="python -m bench compare", description=__doc__)
    parser.add_argument("before", help="a commit, or . for the tree as it lies here")
    parser.add_argument("after", help="the same")
    parser.add_argument("scenario", nargs="*", default=DEFAULT, help=f"default: {' '.join(DEFAULT)}")
    parser.add_argument("--seconds", type=float, default=6.0, help="measured time of a case (6)")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds of load before it counts (2)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each, in turn (3)")
    parser.add_argument("--cpus", default="0,1", help='cores of broker and generator; "free" pins nothing')
    parser.add_argument("--data-dir", type=Path, help="folder for the brokers' data")
    parser.add_argument("--free-memory", action="store_true", help="do not fill the page cache first")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every run to PATH")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    return parser


def rows(
    names: tuple[str, str], wanted: list[tuple[str, Case]], runs: dict[str, dict[str, list[dict[str, float]]]]
) -> list[list[str]]:
    """One row for each metric of each case: the medians and what became of them."""
    out = [["case", "metric", *names, "change", ""]]
    for name, _ in wanted:
        before, after = (median_metrics(runs[side][name]) for side in names)
        for metric in SHOWN:
            if not before.get(metric) or metric not in after:
                continue
            change = after[metric] / before[metric] - 1
            better = change > 0 if higher_is_better(metric) else change < 0
            word = "" if abs(change) < 0.02 else "better" if better else "worse"
            out.append([name, metric, figure(before[metric]), figure(after[metric]), f"{change:+.1%}", word])
    return out


def main() -> int:
    """0 when every case worked, 1 when one did not."""
    parser = arguments()
    given = parser.parse_args()
    cpus = parse_cpus(given.cpus)
    folder = given.data_dir or Path(tempfile.gettempdir())
    sides = (given.before, given.after if given.after != given.before else f"{given.after} again")
    failed = False
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-compare-")))
        try:
            wanted = [
                (f"{scenario.name}: {case.name}", case)
                for scenario in choose(load_all(), given.scenario)
                for case in scenario.cases
            ]
            trees = {
                side: stack.enter_context(sources(name, scratch))
                for side, name in zip(sides, (given.before, given.after), strict=True)
            }
        except ValueError as error:
            parser.error(str(error))
        page_cache = None if given.free_memory else stack.enter_context(PageCache(folder))
        options = Options(given.seconds, given.warm_up, cpus, folder, None, page_cache)
        if cpus.generator is not None:
            os.sched_setaffinity(0, {cpus.generator})
        runs: dict[str, dict[str, list[dict[str, float]]]] = {
            side: {name: [] for name, _ in wanted} for side in sides
        }
        for number in range(given.runs):
            for name, case in wanted:
                # The order changes from run to run, so that neither always comes first.
                for side in sides if number % 2 == 0 else sides[::-1]:
                    print(f"run {number + 1}/{given.runs}  {name}  {side}", file=sys.stderr, flush=True)
                    os.environ[SOURCE_VARIABLE] = str(trees[side])
                    result = run_case(case.load, options)
                    failed |= bool(result.error)
                    if result.metrics:
                        runs[side][name].append(result.metrics)
        os.environ.pop(SOURCE_VARIABLE, None)
    described = machine.describe(folder)
    print(
        f"{described['date']} · {described['cpu']} · median of {given.runs} run(s) of {given.seconds:g} s\n"
    )
    print((markdown_table if given.markdown else text_table)(rows(sides, wanted, runs)))
    if given.json:
        given.json.write_text(json.dumps({"machine": described, "runs": runs}, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

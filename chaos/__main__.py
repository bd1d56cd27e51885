"""`./dev chaos`: a cluster of real processes under faults. A seed is the whole schedule."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Final

from chaos import isolation
from chaos.broken import BREAKS, broken_sources
from chaos.schedule import KINDS, MIXES, STORIES, Fault, Shape, draw, read, story, written

_IMPOSSIBLE: Final = 3
"""Exit code when this machine cannot run a cluster of its own."""


def main() -> int:
    """Runs what the arguments say. Returns 1 when a promise was broken, 3 when the machine cannot."""
    if sys.argv[1:2] == ["standalone"]:
        from chaos import standalone

        del sys.argv[1]
        return standalone.main()
    if sys.argv[1:2] == ["transactions"]:
        from chaos.transactions import run

        del sys.argv[1]
        return run.main()
    parser = argparse.ArgumentParser(prog="./dev chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=60.0, help="how long faults happen (60)")
    parser.add_argument(
        "--mix", choices=(*MIXES, *STORIES), default="all", help="which kinds of faults (all)"
    )
    parser.add_argument("--every", type=float, default=6.0, help="seconds from one fault to the next (6)")
    parser.add_argument(
        "--metadata", choices=("etcd", "zk"), default="etcd", help="the metadata service (etcd)"
    )
    parser.add_argument("--metadata-servers", type=int, choices=(1, 3), default=1, help="of that service (1)")
    parser.add_argument("--rate", type=float, default=30.0, help="messages a second, client and topic (30)")
    parser.add_argument(
        "--replay", type=Path, help="a schedule that a run has printed or kept, in place of a mix"
    )
    parser.add_argument(
        "--patience", type=float, default=300.0, help="seconds until what is late is stuck (300)"
    )
    parser.add_argument("--folder", type=Path, help="where logs, history and report go (a new one)")
    parser.add_argument(
        "--break",
        dest="broken",
        choices=sorted(BREAKS),
        help="run servers with one rule of the product broken: the rig must notice",
    )
    parser.add_argument("--schedule", action="store_true", help="print the schedule as JSON, and do nothing")
    options = parser.parse_args()
    shape = Shape(metadata=tuple(f"m{number + 1}" for number in range(options.metadata_servers)))
    if options.replay is not None:
        faults = read(options.replay.read_text(encoding="utf-8"))
    elif options.mix in STORIES:
        faults = story(options.mix, options.seconds, shape)
    else:
        faults = draw(options.seed, options.mix, options.seconds, shape, every_s=options.every)
    if options.schedule:
        print(written(faults), end="")
        return 0
    if not isolation.is_inside():
        reason = isolation.why_impossible()
        if reason is not None:
            print(f"this machine cannot: {reason}", file=sys.stderr)
            return _IMPOSSIBLE
        folder = options.folder or Path(tempfile.mkdtemp(prefix="magnetar-chaos-"))
        return isolation.run_inside(
            [*sys.argv[1:], "--seed", str(options.seed), "--folder", str(folder.resolve())]
        )
    return _run(options, shape, faults)


def _run(options: argparse.Namespace, shape: Shape, faults: list[Fault]) -> int:
    # Not before: a schedule alone needs no client.
    from chaos.processes import NotHereError
    from chaos.report import page, summary
    from chaos.run import Plan, Run

    assert all(each.kind in KINDS for each in faults)
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedule.json").write_text(written(faults), encoding="utf-8")
    print(f"seed {options.seed}, mix {options.mix}, in {folder}", flush=True)
    for fault in faults:
        print(fault)
    seconds = max([options.seconds, *(each.end_s for each in faults)])
    sources = broken_sources(options.broken, folder) if options.broken else None
    plan = Plan(seconds, faults, shape, options.metadata, options.rate, options.patience, sources)
    try:
        outcome = Run(folder, plan, lambda text: print(text, flush=True)).run()
    except NotHereError as error:
        print(f"this machine cannot: {error}", file=sys.stderr)
        return _IMPOSSIBLE
    title = f"seed {options.seed}, mix {options.mix}, {seconds:.0f} s"
    (folder / "report.html").write_text(page(title, outcome), encoding="utf-8")
    print("\n".join(summary(outcome)))
    print(f"report: {folder / 'report.html'}")
    return int(bool(outcome.violations))


if __name__ == "__main__":
    sys.exit(main())

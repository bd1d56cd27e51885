"""Command line: `python -m sim`, from the root of the project."""

from __future__ import annotations

import argparse
import sys
import time

from sim.mutations import MUTATIONS
from sim.run import run_seed
from sim.shrink import shrink
from sim.story import LedgerStory

SEEDS_OF_A_MUTATION = 1000


def arguments() -> argparse.ArgumentParser:
    """All options."""
    parser = argparse.ArgumentParser(
        prog="./dev sim", description="Lives of ledgers under faults, in virtual time; a seed is a run."
    )
    add = parser.add_argument
    add("--seeds", type=int, default=1000, help="how many seeds (%(default)s)")
    add("--first", type=int, default=0, metavar="SEED", help="the first of them (%(default)s)")
    add("--minutes", type=float, metavar="M", help="stop after this time")
    add("--story", metavar="NAME", help="tell one story (a seed, a dot, a number from 0 to 3)")
    add(
        "--break",
        dest="broken",
        choices=sorted(MUTATIONS),
        help="break this rule of the protocol: the first seed that notices it is shrunk and told",
    )
    add("--mutations", action="store_true", help="break every rule in turn: which seed notices it")
    return parser


def main(options: argparse.Namespace) -> int:
    """Returns the exit code: 1 when something did not hold (with --break, when nothing was noticed)."""
    if options.story is not None:
        return tell(options.story)
    if options.mutations:
        return every_mutation()
    if options.broken is not None:
        with MUTATIONS[options.broken].broken():
            return 1 - search(options.first, options.seeds, None)
    return search(options.first, options.seeds, options.minutes)


def tell(name: str) -> int:
    """Prints everything that happens in a story."""
    story = LedgerStory(name, keep_log=True)
    violations = story.run()
    print("\n".join(story.world.log or ()))
    for violation in violations:
        print(f"{violation.rule}: {violation.detail}")
    return 1 if violations else 0


def search(first: int, seeds: int, minutes: float | None) -> int:
    """Runs seeds until one fails, which is shrunk and told."""
    began = time.monotonic()
    cpu = time.process_time()
    for number in range(seeds):
        if minutes is not None and time.monotonic() - began > minutes * 60:
            seeds = number
            break
        outcome = run_seed(first + number)
        if outcome.violations:
            trace = shrink(outcome.story)
            left_out = len(trace.skipped)
            print(f"seed {outcome.seed}, story {outcome.story}, {left_out} planned events left out:")
            print("\n".join(trace.log))
            for violation in trace.violations:
                print(f"{violation.rule}: {violation.detail}")
            print(f"log hash {outcome.log_hash}; the whole of it: ./dev sim --story {outcome.story}")
            return 1
    rate = seeds / max(time.process_time() - cpu, 1e-9)
    print(f"{seeds} seeds from {first} on, everything held, {rate:.0f} seeds/s on one core")
    return 0


def every_mutation() -> int:
    """Breaks the rules one by one."""
    missed = 0
    for name, mutation in MUTATIONS.items():
        with mutation.broken():
            seeds = range(SEEDS_OF_A_MUTATION)
            noticed = next((seed for seed in seeds if run_seed(seed).violations), None)
        missed += noticed is None
        print(f"{name:32} {'not noticed' if noticed is None else f'seed {noticed}':12} {mutation.rule}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(arguments().parse_args()))

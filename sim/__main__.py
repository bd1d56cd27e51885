"""Command line: `python -m sim`, from the root of the project."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence

from sim.balance.mutations import BALANCE_MUTATIONS
from sim.breaking import Mutation
from sim.broker.mutations import BROKER_MUTATIONS
from sim.cluster.mutations import CLUSTER_MUTATIONS
from sim.mutations import LEDGER_MUTATIONS
from sim.owners.mutations import OWNER_MUTATIONS
from sim.renewing import PLACES, renewed, with_seed
from sim.run import SCENARIOS, Outcome, first_to_fail, run_seed, story_of
from sim.several.mutations import SEVERAL_MUTATIONS
from sim.shrink import shrink
from sim.transactions.mutations import TRANSACTION_MUTATIONS

SEEDS_OF_A_MUTATION = 1000
MUTATIONS = {
    **LEDGER_MUTATIONS,
    **CLUSTER_MUTATIONS,
    **BROKER_MUTATIONS,
    **OWNER_MUTATIONS,
    **BALANCE_MUTATIONS,
    **TRANSACTION_MUTATIONS,
    **SEVERAL_MUTATIONS,
}


def arguments() -> argparse.ArgumentParser:
    """All options."""
    parser = argparse.ArgumentParser(
        prog="./dev sim", description="Ledgers and clusters under faults, in virtual time; a seed is a run."
    )
    add = parser.add_argument
    add("--seeds", type=int, default=1000, help="how many seeds (%(default)s)")
    add("--first", type=int, default=0, metavar="SEED", help="the first of them (%(default)s)")
    add("--minutes", type=float, metavar="M", help="stop after this time")
    add(
        "--scenario",
        choices=(*SCENARIOS, "all"),
        default="all",
        help="ledgers: cores alone, a thousandth of a second each; cluster: everything;"
        " broker: topics and clients; owners: brokers that share a namespace; balance: their load;"
        " transactions: those of clients, and kills; several: the same on two brokers (%(default)s)",
    )
    add(
        "--story",
        metavar="NAME",
        help="tell one story: 7.2 is the third ledger of seed 7 (of four), c7 its cluster, b7 its"
        " broker, o7 its owners, e7 its balance, t7 its transactions, s7 those of two brokers",
    )
    add(
        "--break",
        dest="broken",
        choices=sorted(MUTATIONS),
        help="break this rule of the protocol: the first seed that notices it is shrunk and told",
    )
    add(
        "--mutations",
        nargs="*",
        metavar="NAME",
        help="break every rule in turn, or these: which seed notices it",
    )
    add(
        "--renew",
        nargs="*",
        metavar="NAME",
        help="write seeds that notice their broken rule again in place of those that do not; of these rules,"
        " the cheapest of some",
    )
    return parser


def main(options: argparse.Namespace) -> int:
    """Returns the exit code: 1 when something did not hold (with --break, when nothing was noticed)."""
    if options.story is not None:
        return tell(options.story)
    if options.mutations is not None:
        return every_mutation({name: MUTATIONS[name] for name in options.mutations or MUTATIONS})
    if options.renew is not None:
        return renew(options.renew)
    if options.broken is not None:
        mutation = MUTATIONS[options.broken]
        with mutation.broken():
            return 1 - search(options.first, options.seeds, None, (mutation.scenario,))
    scenarios = SCENARIOS if options.scenario == "all" else (options.scenario,)
    return search(options.first, options.seeds, options.minutes, scenarios)


def tell(name: str) -> int:
    """Prints everything that happens in a story."""
    story = story_of(name, keep_log=True)
    violations = story.run()
    print("\n".join(story.world.log or ()))
    for violation in violations:
        print(f"{violation.rule}: {violation.detail}")
    return 1 if violations else 0


def search(first: int, seeds: int, minutes: float | None, scenarios: Sequence[str]) -> int:
    """Runs seeds until one fails, which is shrunk and told."""
    began = time.monotonic()
    cpu_s = dict.fromkeys(scenarios, 0.0)
    for number in range(seeds):
        if minutes is not None and time.monotonic() - began > minutes * 60:
            seeds = number
            break
        for scenario in scenarios:
            begun = time.process_time()
            outcome = run_seed(first + number, scenario)
            cpu_s[scenario] += time.process_time() - begun
            if outcome.violations:
                tell_shortly(outcome)
                return 1
    rates = ", ".join(f"{seeds / max(cpu_s[name], 1e-9):.0f} of {name}" for name in scenarios)
    print(f"{seeds} seeds from {first} on, everything held; seeds per second of one core: {rates}")
    return 0


def tell_shortly(outcome: Outcome) -> None:
    """Prints the shortest form of a story that failed."""
    trace = shrink(outcome.story)
    left_out = len(trace.skipped)
    print(f"seed {outcome.seed}, story {outcome.story}, {left_out} planned events left out:")
    print("\n".join(trace.log))
    for violation in trace.violations:
        print(f"{violation.rule}: {violation.detail}")
    print(f"log hash {outcome.log_hash}; the whole of it: ./dev sim --story {outcome.story}")


def every_mutation(mutations: Mapping[str, Mutation]) -> int:
    """Breaks the rules one by one."""
    missed = 0
    for name, mutation in mutations.items():
        with mutation.broken():
            noticed = first_to_fail(mutation.scenario, range(SEEDS_OF_A_MUTATION))
        missed += noticed is None
        found = "not noticed" if noticed is None else f"seed {noticed.seed}"
        print(f"{name:32} {found:12} {mutation.rule}", flush=True)
    return 1 if missed else 0


def renew(names: Sequence[str]) -> int:
    """Writes seeds that notice their broken rules into the files of mutations, which the tests read."""
    missed = 0
    for name in names or MUTATIONS:
        mutation = MUTATIONS[name]
        found = renewed(mutation, range(SEEDS_OF_A_MUTATION), anew=bool(names))
        missed += found is None
        if found is None:
            print(f"{name:32} not noticed: {mutation.rule}", flush=True)
            continue
        print(f"{name:32} {mutation.found_by:5} -> {found.seed:5} {found.cpu_s:6.2f} CPU s", flush=True)
        place = PLACES[mutation.scenario]
        place.write_text(with_seed(place.read_text(encoding="utf-8"), name, found.seed), encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(arguments().parse_args()))

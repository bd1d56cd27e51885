"""`./dev mutate`: breaks each rule of order, of security and of transactions in turn; the tests must notice.

    ./dev mutate                     every rule of the lists below; an hour
    ./dev mutate security            those of one list: security, ordering, transaction
    ./dev mutate "list before"       rules whose names contain the text
    ./dev mutate --list              names
    ./dev mutate --write             renews the tables in docs/internals/*-rules.md

Each rule has a copy of the sources of its own in a temporary folder. A mutant that no test notices is a rule
that nothing holds: the exit code is 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mutant_rule import Rule
from ordering_rules import RULES
from security_rules import SECURITY_RULES
from transaction_rules import TRANSACTION_RULES

ROOT: Final = Path(__file__).parents[1]
LISTS: Final = {"ordering": RULES, "security": SECURITY_RULES, "transaction": TRANSACTION_RULES}
ALL: Final = (*RULES, *SECURITY_RULES, *TRANSACTION_RULES)
BEGIN: Final = "<!-- rules: begin -->"
END: Final = "<!-- rules: end -->"
TEST_S_MAX: Final = 300
"""A mutant that makes a test wait for ever is noticed too."""


def mutated(rule: Rule) -> str:
    """The file of a rule with the rule broken. Raises ValueError when the patch does not fit."""
    text = (ROOT / "src" / "magnetar" / rule.file).read_text("utf-8")
    if text.count(rule.old) != 1:
        raise ValueError(f"{rule.name}: its text occurs {text.count(rule.old)} times in {rule.file}")
    return text.replace(rule.old, rule.new)


@contextmanager
def sources(rule: Rule | None) -> Iterator[Path]:
    """A copy of the sources in which `rule` is broken, none when None; not the compiled modules."""
    with tempfile.TemporaryDirectory(prefix="magnetar-mutant-") as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        if rule is not None:
            (copy / "magnetar" / rule.file).write_text(mutated(rule), "utf-8")
        yield copy


def first_failure(rule: Rule | None, tests: tuple[str, ...]) -> str | None:
    """The first test that notices; None when none does. Raises RuntimeError when tests could not be run."""
    with sources(rule) as copy:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider"]
        try:
            done = subprocess.run(
                [*command, *(f"tests/{test}" for test in tests)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                check=False,
                timeout=TEST_S_MAX,
            )
        except subprocess.TimeoutExpired:
            return "a test that did not end"
    for line in done.stdout.splitlines():
        if line.startswith("FAILED "):
            return line.split()[1].removeprefix("tests/")
    if done.returncode not in (0, 1) or "error" in done.stdout.splitlines()[-1].lower():
        raise RuntimeError(
            f"pytest ended with code {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-500:]}"
        )
    return None


def table(rules: tuple[Rule, ...]) -> str:
    """The rules as a table of a document."""
    rows = ["| Rule | Without it | Where | Tests that notice |", "|---|---|---|---|"]
    for rule in rules:
        tests = ", ".join(f"`tests/{test}`" for test in rule.tests)
        rows.append(f"| {rule.name} | {rule.why} | `{rule.file}` | {tests} |")
    return "\n".join(rows)


def path_of(name: str) -> Path:
    """The document that tells one of LISTS."""
    return ROOT / "docs" / "internals" / f"{name}-rules.md"


def document(name: str) -> str:
    """That document with its table as it should be."""
    text = path_of(name).read_text("utf-8")
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{table(LISTS[name])}\n{END}{rest.split(END)[1]}"


def selected(arguments: list[str]) -> tuple[Rule, ...]:
    """The rules that arguments choose: all, those of a list, or those with a part of a name."""
    if len(arguments) == 1 and arguments[0] in LISTS:
        return LISTS[arguments[0]]
    return tuple(rule for rule in ALL if not arguments or any(word in rule.name for word in arguments))


def main(arguments: list[str]) -> int:
    """Runs what the arguments select; the exit code."""
    if arguments == ["--write"]:
        for name in LISTS:
            path_of(name).write_text(document(name), "utf-8")
        return 0
    if arguments == ["--list"]:
        print("\n".join(rule.name for rule in ALL))
        return 0
    chosen = selected(arguments)
    started, missed = time.monotonic(), []
    for rule in chosen:
        began = time.monotonic()
        found = first_failure(rule, rule.tests)
        if found is None:
            missed.append(rule.name)
        print(f"{rule.name}: {found or 'NOT NOTICED'} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} mutants noticed, {time.monotonic() - started:.0f} s")
    return int(bool(missed) or not chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

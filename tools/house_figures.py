"""Figures of the source code by which `docs/internals/model-comparison.md` compares it with model codebases.

    python tools/house_figures.py               all figures
    python tools/house_figures.py --sample N    also N names and N docstrings of chance, to be read blind
    python tools/house_figures.py --seed S      another choice of them

Files that a compiler of protocols wrote do not count. The lines of a function are those of its body, without
its docstring.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from source_trees import REPOSITORY, nodes

PACKAGE: Final = REPOSITORY / "src" / "magnetar"
FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef
_IGNORE: Final = re.compile(r"#\s*type:\s*ignore")
_COMMITS: Final = 20
_SUBJECT_CHARS_MAX: Final = 72
_BODY_WORDS_MIN: Final = 8
"""Fewer words than this in a commit's body give no reason."""


def modules() -> list[Path]:
    """The modules of the package that people write."""
    return sorted(path for path in PACKAGE.rglob("*.py") if not path.stem.endswith("_pb2"))


def functions(paths: Iterable[Path]) -> Iterator[tuple[Path, Function]]:
    """Functions and methods with their modules."""
    for path in paths:
        yield from ((path, node) for node in nodes(path) if isinstance(node, FUNCTION))


def body_lines(function: Function) -> int:
    """Lines of the body without its docstring; 0 when there is nothing else."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def spread(sizes: Sequence[int]) -> str:
    """Median, 90th and 99th percentile and maximum of sizes, of which there is at least one."""
    ordered = sorted(sizes)
    at = [ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (90, 99)]
    return f"median {statistics.median_low(ordered)}, p90 {at[0]}, p99 {at[1]}, max {ordered[-1]}"


def rows(text: str) -> int:
    """Lines of a list that are neither empty nor a comment."""
    return sum(bool(line.strip()) and not line.startswith("#") for line in text.splitlines())


def sizes(paths: Sequence[Path]) -> Iterator[str]:
    """Point 4."""
    lines = [len(path.read_text(encoding="utf-8").splitlines()) for path in paths]
    yield f"modules: {len(paths)} with {sum(lines)} lines: {spread(lines)}"
    bodies = [body_lines(function) for _, function in functions(paths)]
    for limit in (60, 70):
        long = sum(size > limit for size in bodies)
        yield f"functions: {len(bodies)}: {spread(bodies)}; {long} above {limit} lines"


def layers() -> str:
    """Point 1."""
    document = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = document["tool"]["importlinter"]["contracts"]
    ignores = sum(len(each.get("ignore_imports", ())) for each in contracts)
    return f"import contracts: {len(contracts)}, ignored imports: {ignores}"


def cores(paths: Sequence[Path]) -> str:
    """Point 2: how much decides without waiting and without `runtime`."""
    drivers = set((REPOSITORY / "tests/unit/drivers.txt").read_text(encoding="utf-8").split())
    rooms = {"admin", "cli", "demo", "runtime", "server", "spark"}
    of_rooms = [path.relative_to(PACKAGE) for path in paths]
    judged = [path for path in of_rooms if path.parts[0] not in rooms]
    plain = [path for path in judged if path.as_posix() not in drivers]
    share, left_out = 100 * len(plain) // max(1, len(judged)), ", ".join(sorted(rooms))
    return f"plain logic: {len(plain)} of {len(judged)} modules outside of {left_out} ({share} %)"


def room_pages() -> str:
    """Point 3."""
    rooms = sorted({path.parent for path in PACKAGE.rglob("__init__.py")} - {PACKAGE})
    described = sum((room / "README.md").exists() for room in rooms)
    plugs = (REPOSITORY / "tests/unit/feature_plugs.txt").read_text(encoding="utf-8")
    features = re.findall(r"^[a-z]\S*$", plugs, re.MULTILINE)
    return f"rooms: {len(rooms)}, {described} with a README; features with plug points: {len(features)}"


def checked(paths: Sequence[Path]) -> Iterator[str]:
    """Points 9 and 10."""
    count = sum(1 for _ in functions(paths))
    asserts = sum(isinstance(node, ast.Assert) for path in paths for node in nodes(path))
    yield f"asserts: {asserts}, {100 * asserts // count} for 100 functions of the whole package"
    classes = [
        node
        for path in paths
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
        and any(
            isinstance(each, ast.FunctionDef) and each.name == "check" and body_lines(each) > 1
            for each in node.body
        )
    ]
    yield f"classes with a check(): {len(classes)}"
    waits = (REPOSITORY / "tests/unit/checks_across_waits.txt").read_text(encoding="utf-8")
    yield f"checks across a wait that are listed with a reason: {rows(waits)}"


def typing(paths: Sequence[Path]) -> str:
    """Point 12."""
    count = sum(isinstance(node, ast.Name) and node.id == "Any" for path in paths for node in nodes(path))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    ignores = sum(len(_IGNORE.findall(text)) for text in texts)
    lines = sum(len(text.splitlines()) for text in texts)
    return f"`Any`: {count}; ignored type errors: {ignores}, {1000 * ignores / lines:.2f} for 1,000 lines"


def tests() -> str:
    """Point 11."""
    folders = ("unit", "property", "wire", "simulation", "integration", "compat", "e2e")
    count = {
        folder: sum(
            node.name.startswith("test_")
            for _, node in functions(sorted((REPOSITORY / "tests" / folder).rglob("test_*.py")))
        )
        for folder in folders
    }
    return "test functions: " + ", ".join(f"{folder} {number}" for folder, number in count.items())


def history() -> str:
    """Point 14."""
    command = ["git", "log", f"-{_COMMITS}", "--no-merges", "--format=%s%x00%b%x01"]
    said = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    commits = [each.strip().split("\0") for each in said.split("\x01") if each.strip()]
    good = sum(
        len(subject) <= _SUBJECT_CHARS_MAX and ": " in subject and len(body.split()) >= _BODY_WORDS_MIN
        for subject, body in commits
    )
    return f"of the last {len(commits)} commits {good} have a room, a short subject and a reason"


def is_public(function: Function, path: Path) -> bool:
    """Whether a function is for other modules to call."""
    names = (*path.relative_to(PACKAGE).with_suffix("").parts, function.name)
    return not any(name.startswith("_") for name in names)


def samples(paths: Sequence[Path], count: int, seed: int) -> Iterator[str]:
    """Points 5 and 6: names to read without their context, and docstrings of functions that do something."""
    chance = random.Random(seed)
    public = [(path, each) for path, each in functions(paths) if is_public(each, path)]
    said = [(path, each) for path, each in public if ast.get_docstring(each) and body_lines(each) > 2]
    described = sum(ast.get_docstring(function) is not None for _, function in public)
    yield f"public functions: {len(public)}, with a docstring: {described}"
    names = sorted({each.arg for _, function in public for each in function.args.args} - {"self", "cls"})
    names += sorted({function.name for _, function in public})
    yield "names: " + ", ".join(sorted(chance.sample(names, min(count, len(names)))))
    for path, function in sorted(chance.sample(said, min(count, len(said))), key=lambda each: str(each[0])):
        place = f"{path.relative_to(PACKAGE).as_posix()}:{function.lineno} {function.name}"
        yield f"{place}({ast.unparse(function.args)})\n    {ast.get_docstring(function)}"


def main() -> int:
    """Prints the figures of this work tree."""
    parser = argparse.ArgumentParser(description="Figures of the source code for model-comparison.md.")
    parser.add_argument("--sample", type=int, default=0, help="also print so many names and docstrings")
    parser.add_argument("--seed", type=int, default=15, help="the choice of them")
    given = parser.parse_args()
    paths = modules()
    print("\n".join([layers(), cores(paths), room_pages(), *sizes(paths), *checked(paths)]))
    print("\n".join([tests(), typing(paths), history()]))
    if given.sample:
        print("\n".join(samples(paths, given.sample, given.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

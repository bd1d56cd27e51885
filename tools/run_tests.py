"""`./dev test`: the tests in stages, the fast ones first, with one summary.

    ./dev test                       every stage
    ./dev test unit integration      these stages
    ./dev test --compiled unit       on a copy of the sources whose hot modules are compiled
    ./dev test --twins               as CI: all stages compiled, and pure the tests that can tell
    ./dev test --cluster             integration and compat against three brokers in place of standalones, on
                                     bookies and etcd; --cluster=zk on ZooKeeper
    ./dev test nightly               both twins with all that needs no JVM, every property with new cases, and
                                     what explores for long: simulation, mutants, fuzzing
    ./dev test nightly PART...       these parts of it: a stage, a stage with the pure twin (fast-pure),
                                     or what explores; each part prints a closing line
    ./dev test tests/unit/base -x    paths, in one stage
    ./dev test wire -k frame         other options go to pytest
    ./dev test --costs e2e           CPU seconds of each file and of the dearest tests
    ./dev test --help                this text

Stages: fast (unit, property, wire, simulation), new-cases, integration, compat, cluster (a part of compat, as
with --cluster), spark, e2e; a folder's name runs that folder alone.

The stages compat, cluster and integration, whose tests mostly wait, run one after the other beside the other
stages; their output comes when one of these has ended. With -x, -s, --pdb or --costs stages run one by one.

A test that hangs ends with its process and has failed; the stacks of its threads stand above the failure.

A test that fails beside others is run a second time, alone. If it passes then, it counts as
passed and is listed as unsteady in the summary, its failure above: a race that has to be found.

The last line is `N passed, N failed, N skipped` over all stages.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO
from xml.etree import ElementTree

import build_twin
import spark_classes
import twin_build
import twin_tests

COMPILED = "--compiled"
TWINS = "--twins"
NIGHTLY = "nightly"
CLUSTER = "--cluster"
"""Option of pytest: see `tests/support/serving.py`."""
HELP = frozenset({"-h", "--help"})

DEADLINE_S = 4 * 3600
"""Most seconds of all stages together, so that a test that hangs does not hang the run. Beside eight busy
loops on two cores the stages take two hours."""
TWINS_DEADLINE_S = 80 * 60
"""The same of `--twins`, which is what CI runs. CI stops after 90 minutes, checks and a new environment
included, without a word of what passed: this one has to be first."""

TEST_MAX_S = 900
COMPUTING_TEST_MAX_S = 300
"""A single test that takes longer, one of COMPUTES than the second, prints where each of its threads stands.
Then its process ends: the test has failed, and another process runs the tests behind it. The dearest of
COMPUTES takes 20 s on a free machine, the dearest of all five minutes."""


@dataclass(frozen=True)
class Stage:
    """Tests that run under one pytest."""

    name: str
    folders: tuple[str, ...]
    options: tuple[str, ...] = ()


PARALLEL = ("-n", "2")
# Process tests of one file share fixtures and some of them measure progress: keep files together. They
# mostly wait, for a disk, a server, a JVM that starts: twice as many as two cores keep both busy.
# xdist would begin with the files that have most tests; their conftest.py knows which take longest.
BY_FILE = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")
# A Spark session is a JVM that fills a core while it compiles itself; memory bears three of them.
SPARK_BY_FILE = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")

SEED = random.SystemRandom().randrange(1 << 32)
"""Seed of the generated cases that no run had before."""
NEW_FILES_MAX = 8
"""Number of files of property tests that run such cases in one run; all of them would take minutes."""
NEW_FILES = tuple(
    random.Random(SEED).sample(sorted(map(str, Path("tests/property").glob("test_*.py"))), NEW_FILES_MAX)
    if Path("tests/property").is_dir()
    else ()
)
NEW_CASES = ("--hypothesis-profile=new", f"--hypothesis-seed={SEED}")

ON_A_CLUSTER = ("integration", "compat")
"""Folders whose tests run with `--cluster`, except those with the mark `one_process`."""
CLUSTER_SAMPLE = ("tests/compat/test_official_client.py",)
"""Those that every run takes."""

STAGES = (
    Stage("fast", ("unit", "property", "wire", "simulation"), PARALLEL),
    Stage("new-cases", NEW_FILES, (*PARALLEL, *NEW_CASES)),
    Stage("integration", ("integration",), BY_FILE),
    Stage("compat", ("compat",), BY_FILE),
    Stage("cluster", CLUSTER_SAMPLE, (*BY_FILE, CLUSTER)),
    Stage("spark", ("spark",), SPARK_BY_FILE),
    Stage("e2e", ("e2e",), SPARK_BY_FILE),
)


ALL_CASES = "--nightly"
"""Without it, tests of very many cases take a part of them: see `nightly` in tests/conftest.py."""

COMPUTES = ("fast", "new-cases")
"""Stages whose tests compute all the time, in virtual time: what else the machine does changes no outcome."""
WAITS = ("spoken", "compat", "cluster", "integration")
"""Stages whose tests mostly wait for servers and clients in processes of their own. They run one after the
other beside the other stages, which have about as much to do. Alone, each leaves part of two cores unused."""
ONE_BY_ONE = ("-s", "--pdb", "-x", "--exitfirst", "--costs")
"""Options with which no two stages run at the same time."""

SECOND_LOOK = ("fast", "spoken", "integration", "compat", "cluster", "spark", "e2e")
"""Stages whose tests share the machine with each other's processes and threads; new cases have one chance."""
SECOND_LOOKS_MAX = 6
"""Tests of a stage that fail beside others; more of them do not fail by chance."""

WITH_SPARK = ("integration", "compat", "cluster", "spark", "e2e")
"""Stages with tests that start Spark, which is quicker with an archive of its classes."""

ONCE = ("cluster", "spark", "e2e")
"""Stages that run with the compiled twin alone, even at night: their time is that of other programs."""

EXPLORATIONS = {
    "simulation": ("-m", "sim", "--first", str(SEED), "--seeds", "1000000", "--minutes", "20"),
    "mutants": ("tools/mutate.py",),
    "fuzzing": ("-m", "fuzzing", "--twins", "--seconds", "60"),
}
"""What looks for long, at night. In other runs tests/simulation takes a few seeds,
tests/unit/tools/test_mutants.py looks whether every mutant fits, and tests/property/test_fuzzing.py takes
inputs that were kept and some new ones."""


def pure_stages() -> list[Stage]:
    """What `--twins` runs with the pure twin: tests that reach a compiled module, and those that speak the
    protocol to a process."""
    fast = next(stage for stage in STAGES if stage.name == "fast")
    folders = [f"tests/{folder}" for folder in fast.folders]
    spoken = twin_tests.speaking(Path(), ("tests/integration", "tests/compat"))
    reaching = tuple(twin_tests.reaching(Path(), folders))
    # A broken rule that a simulation must notice says nothing of a twin: it tests the simulation.
    ablations = [
        f"--deselect={file}::test_a_broken_rule_is_noticed"
        for file in reaching
        if file.endswith("_under_faults.py")
    ]
    return [
        Stage("fast", reaching, (*PARALLEL, *ablations)),
        Stage("spoken", (*spoken, *twin_tests.SAMPLE), BY_FILE),
    ]


def night_stages() -> list[Stage]:
    """Every stage with all cases, and new cases for every property."""
    files = tuple(sorted(map(str, Path("tests/property").glob("test_*.py"))))
    folders = {"new-cases": files, "cluster": ON_A_CLUSTER}
    return [
        Stage(stage.name, folders.get(stage.name, stage.folders), (*stage.options, ALL_CASES))
        for stage in STAGES
    ]


@dataclass(frozen=True)
class Twin:
    """Which twin of the hot modules the processes of a stage import."""

    name: str = ""
    """`pure`; empty for the compiled one, and for the one that is in the work tree."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables that make it so."""


AS_IT_IS = Twin()
# A build in the work tree must not make this one compiled too.
PURE = Twin("pure", {"MAGNETAR_PURE": "1"})


@dataclass(frozen=True)
class Job:
    """A stage that is to run with a twin."""

    stage: Stage
    twin: Callable[[], Twin] = lambda: AS_IT_IS
    """Waits until the twin is there. Raises build_twin.BuildFailedError."""


@dataclass
class Outcome:
    """How a stage ended."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds of all its processes that ended before it, or at once after it."""
    remark: str = ""
    unsteady: tuple[str, ...] = ()
    """Tests that failed beside others and passed alone."""
    failing: tuple[str, ...] = ()
    """Tests that failed, also alone where they had a second look."""
    code: int = 0
    """Exit code of pytest; -1 when it had to be stopped."""
    options: tuple[str, ...] = ()
    """Without them its tests are others."""
    twin: Twin = AS_IT_IS

    @property
    def title(self) -> str:
        """The stage and, when it is the pure one, the twin."""
        return f"{self.name}-{self.twin.name}" if self.twin.name else self.name

    @property
    def line(self) -> str:
        """How it ended, in a line."""
        told = (
            f"{self.title:16} {self.passed:6} passed {self.failed:4} failed {self.skipped:4} skipped "
            f"{self.seconds:7.1f} s {self.cpu_s:7.1f} CPU s  {self.remark}"
        )
        return told.rstrip()


def main(arguments: list[str]) -> int:
    """Runs what the arguments select in the project's root."""
    if HELP & set(arguments):
        print((__doc__ or "").strip())
        return 0
    options = [argument for argument in arguments if argument.startswith("-")]
    # The word after -k, -m and the like belongs to the option.
    words = list(arguments)
    for option in ("-k", "-m", "-p", "-o", "-W", "-n", "--maxfail", "--durations"):
        while option in words[:-1]:
            at = words.index(option)
            options.insert(options.index(option) + 1, words[at + 1])
            del words[at : at + 2]
    words = [word for word in words if not word.startswith("-")]
    if not words and _cluster_of(options):
        words = list(ON_A_CLUSTER)
    if words[:1] == [NIGHTLY]:
        return run_night(words[1:], options)
    if TWINS in options:
        options.remove(TWINS)
        return run_twins(options)
    if COMPILED not in options:
        return run_all(words, options)
    options.remove(COMPILED)
    try:
        with build_twin.compiled_copy() as root:
            if not build_twin.is_meant(root):
                return 1
            os.environ.update(build_twin.environment_of(root))
            return run_all(words, options)
    except build_twin.BuildFailedError:
        return 1


def _cluster_of(options: Iterable[str]) -> tuple[str, ...]:
    """The option `--cluster` among these, with its value."""
    return tuple(option for option in options if option.partition("=")[0] == CLUSTER)


def run_all(words: list[str], options: list[str]) -> int:
    """Runs the stages that the words name; the exit code."""
    deadline = time.monotonic() + DEADLINE_S
    return report(run_jobs([Job(stage) for stage in selected(words)], options, deadline))


def run_twins(options: list[str]) -> int:
    """Runs all stages with the compiled twin, which is what `pip install .` gives, and with the pure one the
    tests that can tell the twins apart; the exit code."""
    deadline = time.monotonic() + TWINS_DEADLINE_S
    with both_twins(pure_stages(), list(STAGES)) as jobs:
        return report(run_jobs(jobs, options, deadline))


def night_parts() -> dict[str, Stage]:
    """The stages of a night by the names of their parts: `fast-pure` is `fast` with the pure twin."""
    stages = night_stages()
    pure = {f"{stage.name}-pure": stage for stage in stages if stage.name not in ONCE}
    return pure | {stage.name: stage for stage in stages}


def run_night(parts: list[str], options: list[str]) -> int:
    """Runs all stages with the compiled twin, those outside ONCE with the pure one too, and EXPLORATIONS, or
    the parts of these that are named; the exit code."""
    stages = night_parts()
    unknown = sorted(set(parts) - {*stages, *EXPLORATIONS})
    if unknown:
        known = ", ".join((*stages, *EXPLORATIONS))
        print(f"nightly has no part {', '.join(unknown)}; its parts are {known}", file=sys.stderr)
        return 2
    chosen = parts or [*stages, *EXPLORATIONS]
    deadline = time.monotonic() + DEADLINE_S
    pure = [stages[part] for part in chosen if part in stages and part.endswith("-pure")]
    compiled = [stages[part] for part in chosen if part in stages and not part.endswith("-pure")]
    with both_twins(pure, compiled) as jobs:
        outcomes = run_jobs(jobs, options, deadline)
    return report([*outcomes, *(explore(name, deadline) for name in EXPLORATIONS if name in chosen)])


@contextmanager
def both_twins(pure: list[Stage], compiled: list[Stage]) -> Iterator[list[Job]]:
    """Stages with the pure twin and then stages with the compiled one, which is built beside the first."""
    if not twin_build.has_compiler():
        print("no C compiler with Python's headers here: the pure twin alone is tested")
        yield [Job(stage) for stage in compiled] or [Job(stage, lambda: PURE) for stage in pure]
        return
    jobs = [Job(stage, lambda: PURE) for stage in pure]
    if not compiled:
        yield jobs
        return
    with ThreadPoolExecutor(1, "build") as pool:
        copy = build_twin.compiled_copy()
        entered = pool.submit(_entered, copy)
        try:
            yield [*jobs, *(Job(stage, entered.result) for stage in compiled)]
        finally:
            if entered.exception() is None:
                copy.__exit__(None, None, None)


def _entered(copy: AbstractContextManager[Path]) -> Twin:
    """Builds; the compiled twin. Raises build_twin.BuildFailedError."""
    root = copy.__enter__()
    if not build_twin.is_meant(root):
        copy.__exit__(None, None, None)
        raise build_twin.BuildFailedError
    return Twin("", build_twin.environment_of(root))


def explore(name: str, deadline: float) -> Outcome:
    """Runs one of EXPLORATIONS: passed when its exit code is 0."""
    print(f"== {name}", flush=True)
    started = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != "MAGNETAR_PURE"}
    environment["PYTHONPATH"] = "tools"
    left_s = max(1.0, deadline - started)
    code = wait_for([sys.executable, *EXPLORATIONS[name]], left_s, environment)
    outcome = Outcome(name, passed=int(code == 0), failed=int(code != 0))
    outcome.seconds = time.monotonic() - started
    outcome.remark = "" if code == 0 else "stopped: too slow" if code < 0 else f"ended with code {code}"
    say(f"-- {outcome.line}")
    return outcome


def selected(words: list[str]) -> list[Stage]:
    """The stages that the words name; a word that names no stage is a path."""
    if not words:
        return list(STAGES)
    by_folder = {folder: stage for stage in STAGES for folder in stage.folders if not folder.endswith(".py")}
    by_folder |= {stage.name: stage for stage in STAGES}
    chosen: list[Stage] = []
    paths = [word for word in words if word not in by_folder]
    if paths:
        chosen.append(Stage(" ".join(paths), tuple(paths)))
    for word in words:
        if word in by_folder:
            stage = by_folder[word]
            folders = stage.folders if word == stage.name else (word,)
            chosen.append(Stage(word, folders, stage.options))
    return chosen


def say(text: str) -> None:
    """Prints in one piece: two stages that run side by side speak at the same time."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(stage: Stage, options: list[str], deadline: float) -> Outcome:
    """Runs one stage, and what fails of it once more alone."""
    return settle(attempt(Job(stage), options, deadline), deadline)


def run_jobs(jobs: list[Job], options: list[str], deadline: float) -> list[Outcome]:
    """Runs stages, those of WAITS beside the others where there are both; outcomes in the order of the jobs.
    What fails is looked at again when no other stage runs."""
    aside = [job for job in jobs if job.stage.name in WAITS]
    front = [job for job in jobs if job not in aside]
    if not aside or not front or any(option.partition("=")[0] in ONE_BY_ONE for option in options):
        return [settle(attempt(job, options, deadline), deadline) for job in jobs]
    done: dict[Job, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="magnetar-said-") as folder, ThreadPoolExecutor(1) as pool:
        shown: list[Path] = []
        ended: list[Path] = []

        def beside() -> None:
            for number, job in enumerate(aside):
                said = Path(folder) / f"{number}"
                with said.open("w+", encoding="utf-8") as file:
                    done[job] = attempt(job, options, deadline, file)
                ended.append(said)

        def show() -> None:
            """Prints what the stages that ran beside have said, those that have ended and were not shown."""
            for job, said in zip(aside, ended, strict=False):
                if said not in shown:
                    shown.append(said)
                    text = said.read_text(encoding="utf-8").rstrip("\n")
                    say(f"== {job.stage.name}, beside the stages above\n{text}")

        waiting = pool.submit(beside)
        for job in front:
            done[job] = attempt(job, options, deadline)
            show()
        try:
            waiting.result()
        except KeyboardInterrupt:
            interrupt()
            raise
        show()
    for job in jobs:
        settle(done[job], deadline)
    return [done[job] for job in jobs]


def attempt(job: Job, options: list[str], deadline: float, said: TextIO | None = None) -> Outcome:
    """Runs one stage once; a stage without tests does not fail. `said`: gets pytest's output in place of the
    terminal."""
    stage = job.stage
    given = (*stage.options, *options)
    kept = (*_cluster_of(given), *(option for option in given if option == ALL_CASES))
    outcome = Outcome(stage.name, options=kept)
    places = [Path("tests") / folder for folder in stage.folders]
    paths = [str(place) for place in places if place.is_dir()] or [
        folder for folder in stage.folders if Path(folder.split("::")[0]).exists()
    ]
    if not paths:
        outcome.remark = "no such tests"
        outcome.failed = int(stage not in STAGES)
        return outcome
    try:
        outcome.twin = job.twin()
    except build_twin.BuildFailedError:
        outcome.remark = "not run: the hot modules do not compile"
        outcome.failed = 1
        return outcome
    if _interrupted.is_set():
        outcome.remark = "not run: interrupted"
        outcome.failed = 1
        return outcome
    if time.monotonic() >= deadline:
        outcome.remark = "not run: no time left"
        outcome.failed = 1
        return outcome
    say(f"== {outcome.title}")
    if stage.name == "new-cases":
        say(f"seed {SEED}; the same again: ./dev test {' '.join((*NEW_FILES, *NEW_CASES))}")
    started = time.monotonic()
    if stage.name in WITH_SPARK:
        with _making:
            spark_classes.make()
    with tempfile.TemporaryDirectory(prefix="magnetar-tests-") as folder:
        results = Path(folder) / "results.xml"
        cache = ["-o", f"cache_dir={Path(folder) / 'cache'}"]
        arguments = [*paths, *given, *cache, f"--junitxml={results}"]
        used: list[float] = []
        outcome.code = pytest(arguments, deadline, test_max_s(stage.name), said, used, outcome.twin)
        outcome.cpu_s = sum(used)
        count(results, outcome)
        outcome.failing = tuple(failed_tests(Path(folder) / "cache"))
        outcome.seconds = time.monotonic() - started
    say(f"-- {outcome.line}")
    return outcome


_making = threading.Lock()
"""Two stages that begin at the same time make one archive of Spark's classes."""


def settle(outcome: Outcome, deadline: float) -> Outcome:
    """Judges what an attempt has left: failed tests run once more, alone, and the remark says why a stage
    ended early."""
    code, started = outcome.code, time.monotonic()
    if code == 1 and outcome.name in SECOND_LOOK:
        look_again(outcome, deadline)
        code = 0 if outcome.failed == 0 else code
        outcome.seconds += time.monotonic() - started
    if code == 5:
        outcome.remark = "no tests"
    elif code not in (0, 1) or (code == 1 and outcome.failed == 0):
        outcome.failed += 1
        outcome.remark = "stopped: too slow" if code < 0 else f"pytest ended with code {code}"
    return outcome


def failed_tests(cache: Path) -> list[str]:
    """Ids of what failed, from pytest's cache; of a file that could not be imported, its path."""
    noted = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(noted.read_text(encoding="utf-8"))) if noted.exists() else []


def look_again(outcome: Outcome, deadline: float) -> None:
    """Runs each of a few failed tests alone; moves those that pass from failed to passed and names them."""
    tests = outcome.failing
    if not 0 < len(tests) <= SECOND_LOOKS_MAX or len(tests) != outcome.failed:
        return
    if not all("::" in test for test in tests):
        return
    for test in tests:
        print(f"== {outcome.title}: alone, for it failed beside others: {test}", flush=True)
        alone = [test, "-n", "0", *outcome.options]
        if pytest(alone, deadline, test_max_s(outcome.name), twin=outcome.twin) == 0:
            outcome.failed -= 1
            outcome.passed += 1
            outcome.unsteady += (test,)
    outcome.failing = tuple(test for test in tests if test not in outcome.unsteady)


def test_max_s(stage: str) -> int:
    """Most seconds of one test of a stage."""
    return COMPUTING_TEST_MAX_S if stage in COMPUTES else TEST_MAX_S


def pytest(
    arguments: list[str],
    deadline: float,
    test_s: int,
    said: TextIO | None = None,
    used: list[float] | None = None,
    twin: Twin = AS_IT_IS,
) -> int:
    """Pytest's exit code; -1 when it had to be stopped. `test_s`: seconds after which a test ends with its
    process; `said`: gets its output; `used`: its CPU seconds."""
    # The traceback is written and the process ended by a thread of its own, without Python: also when a test
    # holds the interpreter's lock.
    limit = ["-o", f"faulthandler_timeout={test_s}", "-o", "faulthandler_exit_on_timeout=true"]
    command = [sys.executable, ADOPTING, sys.executable, "-m", "pytest", *limit, *arguments]
    environment = {**os.environ, **twin.environment}
    return wait_for(command, max(1.0, deadline - time.monotonic()), environment, said, used)


ADOPTING = str(Path(__file__).with_name("adopting.py"))
_LOOK_S = 0.05
"""Seconds between two looks whether a command has ended. `Popen.wait` would lose what it used."""

_running: set[subprocess.Popen[bytes]] = set()
"""Commands that have not ended, at most one for each thread."""
_interrupted = threading.Event()
"""Whether Ctrl-C came: no stage begins any more."""


def interrupt() -> None:
    """Ends what runs, and lets nothing begin any more.

    Its own session keeps Ctrl-C from a command; it gets the chance to stop what it started. Only the main
    thread is interrupted, so it also ends what another thread waits for.
    """
    _interrupted.set()
    for each in tuple(_running):
        with suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGINT)


def wait_for(
    command: list[str],
    seconds: float,
    environment: dict[str, str] | None = None,
    said: TextIO | None = None,
    used: list[float] | None = None,
) -> int:
    """The exit code of a command; -1 when it had to be stopped, with all that it started. `said`: gets its
    output; `used`: the CPU seconds of the command and of what it waited for."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, start_new_session=True
    )
    _running.add(process)
    end = time.monotonic() + seconds
    try:
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                if used is not None:
                    used.append(usage.ru_utime + usage.ru_stime)
                return process.returncode
            if time.monotonic() > end:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return -1
            # wait4 has no time limit, and the other ways to wait for a process do not tell its CPU time.
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        # Its own session keeps Ctrl-C from it; it gets the chance to stop what it started. Only the main
        # thread is interrupted, so it also ends what another thread waits for.
        for each in tuple(_running):
            os.killpg(each.pid, signal.SIGINT)
        process.wait()
        raise
    finally:
        _running.discard(process)


def count(results: Path, outcome: Outcome) -> None:
    """Reads pytest's result file; a stage that died has none."""
    if not results.exists():
        return
    for suite in ElementTree.parse(results).getroot().iter("testsuite"):
        total, failures, errors, skipped = (
            int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
        )
        outcome.failed += failures + errors
        outcome.skipped += skipped
        outcome.passed += total - failures - errors - skipped


def report(outcomes: list[Outcome]) -> int:
    """Prints the summary; its last line is the sum."""
    print("== summary")
    for outcome in outcomes:
        print(outcome.line)
    for outcome in outcomes:
        for test in outcome.unsteady:
            print(f"UNSTEADY: failed beside others and passed alone, see above: {test} ({outcome.title})")
        for test in outcome.failing:
            print(f"FAILED: {test} ({outcome.title})")
    passed, failed, skipped = (
        sum(getattr(outcome, name) for outcome in outcomes) for name in ("passed", "failed", "skipped")
    )
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""), flush=True)
    return int(failed > 0 or passed == 0)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)

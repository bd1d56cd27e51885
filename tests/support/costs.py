"""CPU and wall-clock seconds of each test file and of the dearest tests: `./dev test --costs`.

A test costs what its process and all processes below it use while it runs. What tests share, such as a server
of a whole file, is in the costs of the test during which it works. Two workers that wait for one core take
longer, so compare CPU seconds and not wall-clock seconds.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
ROWS_MAX: Final = 40
"""Of files, and of tests, where `--costs` has no number."""
WORKER_KEY: Final = "costs"
LOOK_S: Final = 0.1
"""Between two looks at the processes below. What a process uses between its last look and its end is not
counted; one that ends before the first look is not seen at all."""
WITH_PROCESSES: Final = ("integration", "compat", "e2e")
"""Folders of `tests` whose tests start processes that go on by themselves."""
_TESTS: Final = Path(__file__).parents[1]


class ProcessTree:
    """CPU seconds of this process and of those below it, as far as looks saw them.

    The sums that the kernel keeps of ended children do not do: Spark's JVM outlives the Python that started
    it, and no process waits for it.
    """

    def __init__(self) -> None:
        self._used_s: dict[tuple[int, str], float] = {}
        """By process and by when it began, as numbers come again."""
        self._live: set[int] = set()
        self._adopters = {1, *_ancestors(os.getpid())}
        """Processes of which one is the new parent when a parent ends: process 1, or `tools/adopting.py`."""
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def cpu_s(self) -> float:
        """Looks; the seconds until now."""
        with self._lock:
            below = set(_descendants(os.getpid()))
            live = set()
            for pid in below | self._live:
                for parent, began, used_s in _status(pid):
                    if pid in below or parent in self._adopters:
                        live.add(pid)
                        self._used_s[pid, began] = used_s
            self._live = live
            own = os.times()
            return own.user + own.system + sum(self._used_s.values())

    def look_often(self) -> None:
        """Looks in a thread of its own until the process ends."""

        def looks() -> None:
            while not self._ended.wait(LOOK_S):
                self.cpu_s()

        threading.Thread(target=looks, name="costs", daemon=True).start()

    def close(self) -> None:
        """Ends the thread, if there is one."""
        self._ended.set()


def own_cpu_s() -> float:
    """Seconds of this process and of the children that it waited for."""
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system


def _descendants(pid: int) -> Iterator[int]:
    """Live processes below one, however deep; none where the system does not say."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        try:
            children = Path(f"/proc/{pid}/task/{thread}/children").read_text()
        except OSError:
            continue
        for child in map(int, children.split()):
            yield child
            yield from _descendants(child)


def _ancestors(pid: int) -> Iterator[int]:
    """The parent of a process, and so on, as far as the system says."""
    while pid > 1 and (found := next(_status(pid), None)) is not None:
        pid = found[0]
        yield pid


def _status(pid: int) -> Iterator[tuple[int, str, float]]:
    """A process's parent, when it began and the CPU seconds of it alone; nothing when it has gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return
    # The name in parentheses may hold anything; proc(5) numbers the fields after it from 3.
    fields = text.rpartition(")")[2].split()
    yield int(fields[1]), fields[19], sum(map(int, fields[11:13])) / TICKS_PER_S


class Costs:
    """Pytest's plugin: measures in a worker, adds up and prints in the process that has the terminal."""

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._tree: ProcessTree | None = None
        self._of_test: dict[str, tuple[float, float]] = {}
        """CPU and wall-clock seconds."""
        self._start_s = 0.0
        """CPU seconds of all workers until they knew their tests: imports, for the most part."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tests are known. Those that end their processes themselves need no looks, which open files and take
        a fifth of the time of unit tests."""
        self._start_s = own_cpu_s()
        if any(item.path.is_relative_to(_TESTS / name) for item in session.items for name in WITH_PROCESSES):
            self._tree = ProcessTree()
            self._tree.look_often()

    def _cpu_s(self) -> float:
        return own_cpu_s() if self._tree is None else self._tree.cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Set-up and the end of its fixtures included."""
        cpu_s, started = self._cpu_s(), time.monotonic()
        try:
            return (yield)
        finally:
            self._of_test[item.nodeid] = (self._cpu_s() - cpu_s, time.monotonic() - started)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker hands over what it measured."""
        if self._tree is not None:
            self._tree.close()
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[WORKER_KEY] = (
                self._start_s,
                {test: list(costs) for test, costs in self._of_test.items()},
            )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended: xdist's hook. One that died has no output."""
        start_s, of_test = getattr(node, "workeroutput", {}).get(WORKER_KEY, (0.0, {}))
        self._start_s += start_s
        self._of_test |= {test: (cpu_s, wall_s) for test, (cpu_s, wall_s) in of_test.items()}

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints both tables."""
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> Iterator[str]:
        """Files and tests, the dearest first."""
        of_file: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for test, (cpu_s, wall_s) in self._of_test.items():
            sums = of_file[test.partition("::")[0]]
            sums[0] += cpu_s
            sums[1] += wall_s
            sums[2] += 1
        all_s = sum(sums[0] for sums in of_file.values())
        yield f"costs: {all_s:.1f} CPU s of {len(self._of_test)} tests in {len(of_file)} files"
        yield f"and {self._start_s:.1f} CPU s until the tests were collected"
        yield "  CPU s  wall s  tests  file"
        by_file = sorted(of_file.items(), key=lambda each: -each[1][0])
        for file, sums in by_file[: self._rows_max]:
            yield f"{sums[0]:7.2f} {sums[1]:7.2f} {sums[2]:6.0f}  {file}"
        yield "  CPU s  wall s  test"
        by_test = sorted(self._of_test.items(), key=lambda each: -each[1][0])
        for test, (cpu_s, wall_s) in by_test[: self._rows_max]:
            yield f"{cpu_s:7.2f} {wall_s:7.2f}  {test}"

"""Fixtures for every kind of test."""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spark_classes
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from sim import steps

from support.costs import ROWS_MAX, Costs  # needs the path above
from support.order import SEED, waits_for_the_night
from support.serving import follow_redirects, on_a_cluster, server, serving
from support.standalone import CLUSTER, StandaloneProcess

HERE = Path(__file__).parent

# Until the tests are known nothing is garbage: imports make objects that stay.
gc.disable()

os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_classes.options())

# Generated cases are the same in every run, so that a failure is one of the change that it came with.
# `./dev test` goes through others as well, in a stage of their own that says its seed (tools/run_tests.py).
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None, database=None, print_blob=True)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The order of a run again, and all cases where other runs take some."""
    parser.addoption("--order-seed", type=int, help="order of the unit tests; each run tells its own")
    parser.addoption(
        "--costs",
        type=int,
        nargs="?",
        const=ROWS_MAX,
        metavar="ROWS",
        help="CPU seconds of the dearest files and tests",
    )
    parser.addoption("--nightly", action="store_true", help="every case, as `./dev test nightly` runs")
    parser.addoption(
        "--cluster",
        nargs="?",
        const="etcd",
        choices=["etcd", "zk"],
        help="three brokers on bookies and etcd or ZooKeeper in place of each standalone",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Gives workers of xdist the seed of the process that started them."""
    given = getattr(config, "workerinput", {}).get("order_seed", config.getoption("order_seed"))
    config.stash[SEED] = random.randrange(1 << 32) if given is None else given
    rows = config.getoption("costs")
    if rows is not None:
        config.pluginmanager.register(Costs(rows), "costs")
    kind = config.getoption("cluster")
    if kind is not None:
        os.environ[CLUSTER] = kind
        follow_redirects()
    config.addinivalue_line(
        "markers", "nightly(reason): runs with --nightly alone; what runs by day in its place"
    )
    config.addinivalue_line("markers", "every_run: by day too, with the parameters that are marked nightly")
    config.addinivalue_line("markers", "leaves(reason): a unit test that leaves a task or descriptor behind")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker begins: xdist's hook."""
    node.workerinput["order_seed"] = node.config.stash[SEED]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the seed of the order after a failure, so that the order can be repeated."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"order of the unit tests: --order-seed={config.stash[SEED]}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Allows tests that kill processes or run Spark to leave objects to the garbage collector. With
    `--cluster`, leaves out what is about one process; without `--nightly`, what is marked so."""
    if not config.getoption("nightly"):
        later = [item for item in items if waits_for_the_night(item)]
        items[:] = [item for item in items if not waits_for_the_night(item)]
        config.hook.pytest_deselected(items=later)
    if on_a_cluster():
        marked = [item for item in items if item.get_closest_marker("one_process")]
        items[:] = [item for item in items if not item.get_closest_marker("one_process")]
        config.hook.pytest_deselected(items=marked)
    for item in items:
        if item.path.relative_to(HERE).parts[0] in ("integration", "compat", "e2e"):
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"), append=False
            )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What was imported lives as long as the run: the garbage collector need not walk it again and again."""
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 50, 50)
        gc.enable()


steps.install()


@pytest.fixture(autouse=True)
def what_always_holds() -> Iterator[None]:
    """What has states is checked after every step: see `sim/steps.py`."""
    steps.failures()
    yield
    failures = steps.failures()
    if failures:
        raise failures[0]


@pytest.fixture(scope="session")
def nightly(pytestconfig: pytest.Config) -> bool:
    """Whether a test goes through all its cases, where other runs take a part that holds each value."""
    return bool(pytestconfig.getoption("nightly"))


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """A durable standalone that all tests of a run share; use topic names of your own."""
    folder = tmp_path_factory.mktemp("standalone")
    with serving(folder, environment={"MAGNETAR_TRANSACTIONS": "true"}) as process:
        yield process


@pytest.fixture
def standalone_folder(tmp_path: Path) -> Iterator[StandaloneProcess]:
    """A standalone of the test's own, not started yet; killed at the end."""
    with server(tmp_path / "standalone") as process:
        yield process

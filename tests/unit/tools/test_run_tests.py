"""Which tests run for which words."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import pytest


@pytest.fixture(scope="module")
def run_tests() -> ModuleType:
    path = Path(__file__).parents[3] / "tools" / "run_tests.py"
    spec = importlib.util.spec_from_file_location("run_tests", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[spec.name] = module
    # It imports its neighbours.
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def test_selection(run_tests: ModuleType) -> None:
    def names(*words: str) -> list[tuple[str, tuple[str, ...]]]:
        return [(stage.name, stage.folders) for stage in run_tests.selected(list(words))]

    assert [name for name, _ in names()] == [
        "fast",
        "new-cases",
        "integration",
        "compat",
        "cluster",
        "spark",
        "e2e",
    ]
    assert names("unit", "integration") == [("unit", ("unit",)), ("integration", ("integration",))]
    (path,) = run_tests.selected(["tests/compat/test_official_client.py"])
    assert (path.name, path.options) == ("tests/compat/test_official_client.py", ())
    assert names("tests/unit/base", "tests/wire/x.py") == [
        ("tests/unit/base tests/wire/x.py", ("tests/unit/base", "tests/wire/x.py"))
    ]


def test_the_last_line_is_the_sum(run_tests: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    Outcome = run_tests.Outcome  # noqa: N806 - a class
    assert run_tests.report([Outcome("a", passed=2), Outcome("b", passed=1, failed=1, skipped=3)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 1 failed, 3 skipped"
    assert run_tests.report([Outcome("a", passed=2)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"
    assert run_tests.report([]) == 1


@pytest.fixture
def started(run_tests: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str]]:
    """Stages and commands that were started, each with the twin that it got."""

    @contextmanager
    def copy() -> Iterator[Path]:
        yield tmp_path

    def attempt(job: Any, options: list[str], deadline: float, said: Any = None) -> Any:
        twin = job.twin()
        pure = twin.environment["MAGNETAR_PURE"]
        assert twin.environment.get("PYTHONPATH", "") == ("" if pure else str(tmp_path / "src"))
        assert os.environ["MAGNETAR_PURE"] == "2", "no stage changes what another one gets"
        seen.append((job.stage.name, "pure" if pure else "compiled"))
        return run_tests.Outcome(job.stage.name, passed=1, twin=twin)

    def wait_for(command: list[str], seconds: float, environment: dict[str, str]) -> int:
        assert "MAGNETAR_PURE" not in environment
        seen.append((" ".join(command[1:3]), "command"))
        return 0

    seen: list[tuple[str, str]] = []
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("MAGNETAR_PURE", "2")
    monkeypatch.setattr(run_tests.twin_build, "has_compiler", lambda: True)
    monkeypatch.setattr(run_tests.build_twin, "compiled_copy", copy)
    monkeypatch.setattr(run_tests.build_twin, "is_meant", lambda _: True)
    monkeypatch.setattr(run_tests, "attempt", attempt)
    monkeypatch.setattr(run_tests, "wait_for", wait_for)
    return seen


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["unit", "--help"], ["nightly", "--twins", "-h"]])
def test_help_starts_no_stage(
    words: list[str],
    run_tests: ModuleType,
    started: list[tuple[str, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_tests.main(words) == 0
    assert started == []
    printed = capsys.readouterr().out
    assert printed.startswith("`./dev test`: the tests in stages")
    for word in ("nightly", "--twins", "--compiled", "--costs", *STAGES):
        assert word in printed


STAGES = ["fast", "new-cases", "integration", "compat", "cluster", "spark", "e2e"]


def test_the_pure_twin_runs_what_can_tell(
    run_tests: ModuleType, started: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tests.main(["--twins"]) == 0
    pure, compiled = [("fast", "pure"), ("spoken", "pure")], [(name, "compiled") for name in STAGES]
    assert sorted(started) == sorted([*pure, *compiled])
    # Two lanes, each of which begins with its pure stage.
    front = [each for each in started if each[0] not in run_tests.WAITS]
    aside = [each for each in started if each[0] in run_tests.WAITS]
    assert front[0] == pure[0]
    assert aside == [pure[1], *(each for each in compiled if each[0] in run_tests.WAITS)]
    assert capsys.readouterr().out.splitlines()[-1] == "9 passed, 0 failed"


def test_a_night_has_both_twins_new_cases_of_all_and_explorations(
    run_tests: ModuleType, started: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tests.main(["nightly"]) == 0
    pure = [(name, "pure") for name in STAGES if name not in run_tests.ONCE]
    assert sorted(started[:-3]) == sorted([*pure, *((name, "compiled") for name in STAGES)])
    assert started[-3:] == [
        *((command, "command") for command in ("-m sim", "tools/mutate.py", "-m fuzzing")),
    ]
    assert capsys.readouterr().out.splitlines()[-1] == "14 passed, 0 failed"
    new = next(stage for stage in run_tests.night_stages() if stage.name == "new-cases")
    assert len(new.folders) > run_tests.NEW_FILES_MAX
    assert all("--nightly" in stage.options for stage in run_tests.night_stages())
    assert not [stage for stage in run_tests.STAGES if "--nightly" in stage.options]


def test_parts_of_a_night_run_alone(
    run_tests: ModuleType, started: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tests.main(["nightly", "fast-pure", "mutants"]) == 0
    assert started == [("fast", "pure"), ("tools/mutate.py", "command")]
    assert re.search(r"^-- mutants +1 passed +0 failed", capsys.readouterr().out, re.MULTILINE)
    assert run_tests.main(["nightly", "e2e"]) == 0
    assert started[2:] == [("e2e", "compiled")]


def test_an_unknown_part_of_a_night_is_refused(
    run_tests: ModuleType, started: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tests.main(["nightly", "e2e-pure"]) == 2
    assert started == []
    said = capsys.readouterr().err
    assert "no part e2e-pure" in said
    assert all(part in said for part in ("fast-pure", "cluster", "fuzzing"))


@pytest.fixture
def pytests(run_tests: ModuleType, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands in for pytest: `failing` fail beside others, `broken` alone too; `ran` has what ran alone."""
    stage: dict[str, Any] = {"failing": [], "broken": [], "ran": [], "archives": []}

    def pytest_(
        arguments: list[str],
        deadline: float,
        test_s: int,
        said: TextIO | None = None,
        used: list[float] | None = None,
        twin: Any = None,
    ) -> int:
        if said is not None:
            said.write("said aside\n")
        if arguments[1:3] == ["-n", "0"]:
            stage["ran"].append(" ".join([arguments[0], *arguments[3:]]))
            return int(arguments[0] in stage["broken"])
        cache = Path(next(word for word in arguments if word.startswith("cache_dir=")).partition("=")[2])
        noted = cache / "v" / "cache" / "lastfailed"
        noted.parent.mkdir(parents=True)
        noted.write_text(json.dumps(dict.fromkeys(stage["failing"], True)), encoding="utf-8")
        results = Path(next(word for word in arguments if word.startswith("--junitxml=")).partition("=")[2])
        failures = len(stage["failing"])
        results.write_text(
            f'<testsuites><testsuite tests="10" failures="{failures}" errors="0" skipped="0"/></testsuites>',
            encoding="utf-8",
        )
        return int(failures > 0)

    monkeypatch.setattr(run_tests, "pytest", pytest_)
    monkeypatch.setattr(run_tests.spark_classes, "make", lambda: stage["archives"].append(1))
    return stage


def the_stage(run_tests: ModuleType, name: str) -> Any:
    return next(stage for stage in run_tests.STAGES if stage.name == name)


def jobs(run_tests: ModuleType, *names: str) -> list[Any]:
    return [run_tests.Job(the_stage(run_tests, name)) for name in names]


def test_what_passes_alone_is_named_unsteady(
    run_tests: ModuleType, pytests: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    pytests["failing"] = ["tests/compat/a.py::one", "tests/compat/b.py::two"]
    pytests["broken"] = ["tests/compat/b.py::two"]
    outcome = run_tests.run(the_stage(run_tests, "compat"), [], math.inf)
    assert (outcome.passed, outcome.failed) == (9, 1)
    assert run_tests.report([outcome]) == 1
    assert capsys.readouterr().out.splitlines()[-3:-1] == [
        "UNSTEADY: failed beside others and passed alone, see above: tests/compat/a.py::one (compat)",
        "FAILED: tests/compat/b.py::two (compat)",
    ]


def test_failures_without_a_second_look_are_named(
    run_tests: ModuleType, pytests: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    pytests["failing"] = ["tests/compat/a.py"]
    run_tests.report([run_tests.run(the_stage(run_tests, "compat"), [], math.inf)])
    assert "FAILED: tests/compat/a.py (compat)" in capsys.readouterr().out


def test_stages_with_spark_have_its_archive(run_tests: ModuleType, pytests: dict[str, Any]) -> None:
    run_tests.run(the_stage(run_tests, "fast"), [], math.inf)
    assert pytests["archives"] == []
    run_tests.run(the_stage(run_tests, "e2e"), [], math.inf)
    assert pytests["archives"] == [1]


def test_only_unsteady_tests_pass(run_tests: ModuleType, pytests: dict[str, Any]) -> None:
    pytests["failing"] = ["tests/compat/a.py::one"]
    outcome = run_tests.run(the_stage(run_tests, "compat"), [], math.inf)
    assert (outcome.passed, outcome.failed, outcome.unsteady) == (10, 0, ("tests/compat/a.py::one",))


def test_a_second_look_is_at_the_same_kind_of_server(run_tests: ModuleType, pytests: dict[str, Any]) -> None:
    pytests["failing"] = ["tests/compat/a.py::one"]
    run_tests.run(the_stage(run_tests, "cluster"), [], math.inf)
    run_tests.run(the_stage(run_tests, "compat"), ["--cluster=zk", "-x"], math.inf)
    run_tests.run(the_stage(run_tests, "compat"), ["--nightly"], math.inf)
    assert pytests["ran"] == [
        f"tests/compat/a.py::one {option}" for option in ("--cluster", "--cluster=zk", "--nightly")
    ]


def test_a_cluster_is_for_two_stages_unless_others_are_named(
    run_tests: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[tuple[list[str], list[str]]] = []
    monkeypatch.setattr(run_tests, "run_all", lambda words, options: chosen.append((words, options)) or 0)
    for arguments in (["--cluster"], ["--cluster=zk", "-x"], ["tests/compat/a.py", "--cluster"]):
        run_tests.main(arguments)
    both = ["integration", "compat"]
    assert chosen == [
        (both, ["--cluster"]),
        (both, ["--cluster=zk", "-x"]),
        (["tests/compat/a.py"], ["--cluster"]),
    ]
    (stage,) = [each for each in run_tests.night_stages() if each.name == "cluster"]
    assert (stage.folders, "--cluster" in stage.options) == (tuple(both), True)


def test_new_cases_have_one_chance(run_tests: ModuleType, pytests: dict[str, Any]) -> None:
    pytests["failing"] = ["tests/unit/a.py::one"]
    assert run_tests.run(the_stage(run_tests, "new-cases"), [], math.inf).failed == 1
    assert pytests["ran"] == []


@pytest.mark.parametrize(
    "failing", [[f"tests/compat/a.py::t{number}" for number in range(7)], ["tests/compat/a.py"]]
)
def test_many_failures_and_files_that_cannot_be_imported_are_no_chance(
    run_tests: ModuleType, pytests: dict[str, Any], failing: list[str]
) -> None:
    pytests["failing"] = failing
    assert run_tests.run(the_stage(run_tests, "compat"), [], math.inf).failed == len(failing)
    assert pytests["ran"] == []


def test_what_waits_runs_beside_what_computes(
    run_tests: ModuleType, pytests: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its output comes at the end, and failed tests run alone when all stages of the group have ended."""
    pytests["failing"] = ["tests/a.py::one"]
    names = ("compat", "fast", "integration", "e2e")
    outcomes = run_tests.run_jobs(jobs(run_tests, *names), [], math.inf)
    assert [(each.name, each.passed, each.unsteady) for each in outcomes] == [
        (name, 10, ("tests/a.py::one",)) for name in names
    ]
    assert pytests["ran"] == ["tests/a.py::one"] * 4
    said = capsys.readouterr().out
    for name in ("compat", "integration"):
        assert f"== {name}, beside the stages above\nsaid aside\n" in said
    assert said.count("said aside") == 2
    assert pytests["archives"] == [1, 1, 1]


@pytest.mark.parametrize("option", ["-x", "-s", "--pdb", "--costs", "--costs=200"])
def test_some_options_need_one_stage_after_the_other(
    option: str, run_tests: ModuleType, pytests: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    both = jobs(run_tests, "fast", "compat")
    assert [each.name for each in run_tests.run_jobs(both, [option], math.inf)] == ["fast", "compat"]
    assert "said aside" not in capsys.readouterr().out


def test_what_does_not_compile_is_a_failure(
    run_tests: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def broken() -> Iterator[Path]:
        yield from ()
        raise run_tests.build_twin.BuildFailedError

    monkeypatch.setattr(run_tests.twin_build, "has_compiler", lambda: True)
    monkeypatch.setattr(run_tests.build_twin, "compiled_copy", broken)
    attempted: list[str] = []
    monkeypatch.setattr(run_tests, "pytest", lambda *_, **__: attempted.append("pure") or 0)
    monkeypatch.setattr(run_tests.spark_classes, "make", lambda: None)
    assert run_tests.main(["--twins"]) == 1
    assert attempted == ["pure", "pure"], "what is compiled does not run"
    assert "not run: the hot modules do not compile" in capsys.readouterr().out


def test_compiled_tests_run_on_the_copy(
    run_tests: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @contextmanager
    def copy() -> Iterator[Path]:
        yield tmp_path

    def run_all(words: list[str], options: list[str]) -> int:
        seen.append((words, options, os.environ["PYTHONPATH"], os.environ["MAGNETAR_PURE"]))
        return 7

    seen: list[object] = []
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("MAGNETAR_PURE", "1")
    monkeypatch.setattr(run_tests.build_twin, "compiled_copy", copy)
    monkeypatch.setattr(run_tests.build_twin, "is_meant", lambda _: True)
    monkeypatch.setattr(run_tests, "run_all", run_all)
    assert run_tests.main(["unit", "--compiled", "-x"]) == 7
    assert seen == [(["unit"], ["-x"], str(tmp_path / "src"), "")]

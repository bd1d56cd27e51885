"""Where code cannot be confined it runs only when it may. What Landlock does is tried with real processes:
`tests/integration/test_functions_confined.py`."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.functions.errors import CannotConfineError, ConfinementError
from magnetar.functions.instance.plan import InstancePlan
from magnetar.functions.workers import confinement, landlock, system_calls

LIMITS = (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE)


class Confined:
    """What would have been allowed, and which limits would have been set."""

    def __init__(self) -> None:
        self.reads: list[Path] = []
        self.writes: list[Path] = []
        self.limits: dict[int, int] = {}
        self.ports: Collection[int] | None = None
        self.may_start = True
        self.nice = 0
        self.possible = True

    def confine(self, reads: list[Path], writes: list[Path], ports: Collection[int] | None) -> None:
        if not self.possible:
            raise CannotConfineError("no Landlock")
        self.reads, self.writes, self.ports = list(reads), list(writes), ports

    def refuse(self, *, starts_processes: bool) -> None:
        self.may_start = starts_processes

    def set_priority(self, which: int, who: int, nice: int) -> None:
        assert (which, who) == (os.PRIO_PROCESS, 0)
        self.nice = nice


@pytest.fixture
def confined(monkeypatch: pytest.MonkeyPatch) -> Confined:
    found = Confined()
    monkeypatch.setattr(landlock, "confine", found.confine)
    monkeypatch.setattr(system_calls, "refuse", found.refuse)
    monkeypatch.setattr(os, "setpriority", found.set_priority)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: found.limits.update({kind: pair[0]}))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    return found


def plan_in(folder: Path, **more: object) -> InstancePlan:
    plan = InstancePlan(
        name="f",
        class_name="f",
        package=str(folder / "packages" / "1" / "f.py"),
        inputs=(),
        subscription="s",
        subscription_type="Shared",
        service_url="",
        state_file=str(folder / "state" / "public" / "default" / "f.sqlite"),
        work_folder=str(folder / "code"),
        confines=True,
        memory_bytes_max=1 << 30,
        file_bytes_max=1 << 20,
    )
    return replace(plan, **more)  # type: ignore[arg-type]  # fields


def test_it_keeps_its_package_its_state_and_a_folder_of_its_own(confined: Confined, tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    confinement.confine(plan)
    own, state = tmp_path / "code" / "public" / "default" / "f-0-0", tmp_path / "state" / "public" / "default"
    assert tmp_path / "packages" / "1" in confined.reads
    assert Path(sys.prefix).resolve() in confined.reads
    assert confined.writes[:2] == [own, state]
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(own / "tmp")
    for path in (tmp_path, tmp_path / "state", tmp_path / "code", Path("/etc"), Path("/")):
        assert path not in confined.reads + confined.writes


def test_where_it_cannot_be_confined_it_runs_only_if_it_may(confined: Confined, tmp_path: Path) -> None:
    confined.possible = False
    confinement.confine(plan_in(tmp_path))
    with pytest.raises(ConfinementError, match="functions_unconfined = true"):
        confinement.confine(plan_in(tmp_path, must_confine=True))
    confinement.confine(plan_in(tmp_path, must_confine=True, confines=False))


def test_libraries_above_the_data_are_refused(
    confined: Confined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(ConfinementError, match="move the data"):
        confinement.confine(plan_in(tmp_path / "data"))


def test_limits_are_lowered_and_never_raised(
    confined: Confined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hard = {resource.RLIMIT_NOFILE: 64, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (0, hard.get(kind, 1 << 40)))
    confinement.confine(plan_in(tmp_path))
    assert [confined.limits[kind] for kind in LIMITS] == [0, 64, 1 << 30, 1 << 20]


@pytest.mark.parametrize("before", [0, 3, 12])
def test_the_server_goes_before_the_code(
    confined: Confined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr(os, "getpriority", lambda which, who: before)
    confinement.confine(plan_in(tmp_path, confines=False))
    assert confined.nice == max(5, before), "a server that is nice itself keeps what it has"


def test_processes_and_ports_are_as_the_operator_says(confined: Confined, tmp_path: Path) -> None:
    confinement.confine(plan_in(tmp_path))
    assert (confined.may_start, confined.ports) == (False, None)
    urls = {"service_url": "pulsar://127.0.0.1:6650", "admin_url": "http://127.0.0.1:8080"}
    confinement.confine(plan_in(tmp_path, starts_processes=True, connect_ports=(443,), **urls))
    assert (confined.may_start, confined.ports) == (True, {443, 6650, 8080})

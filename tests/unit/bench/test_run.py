"""How scenarios become runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import modules, run
from bench.broker import Cpus
from bench.run import Options
from bench.scenario import ModuleLoad


def test_a_program_without_a_broker_gets_its_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def noted(module: str, broker: None, *, argument: str, seconds: float, folder: Path) -> dict[str, float]:
        seen.append(argument)
        return {}

    monkeypatch.setattr(modules, "run", noted)
    load = ModuleLoad(module="bench.known_topics", needs_broker=False, argument="loaded")
    done = run.run_case(load, Options(1.0, 0.0, Cpus(None, None), tmp_path, None))
    assert not done.error
    assert seen == ["loaded"]

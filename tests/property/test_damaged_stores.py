"""Stores damaged at random, new ones in each run: what is given is right, what is gone is said.

`python -m bench.damage --seed SEED --count COUNT` does the same at length; a failure names its seed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path

import pytest
from bench.damage import run_trials

COUNT = 30
"""Damages in a run, over one store: about a second."""


@pytest.mark.parametrize("seed", [3, 20261122, None])
def test_damage_costs_its_block_and_is_never_silent(tmp_path: Path, seed: int | None) -> None:
    """None: a seed that was never tried; MAGNETAR_SEED tries one again."""
    if seed is None:
        seed = int(os.environ.get("MAGNETAR_SEED", "0")) or secrets.randbits(32)
    outcomes = asyncio.run(run_trials(seed, COUNT, tmp_path))
    faults = [fault for outcome in outcomes for fault in outcome.faults]
    assert not faults, f"seed {seed}: {faults[:3]}"
    assert len(outcomes) == COUNT

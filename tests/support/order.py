"""The seed of the order in which unit tests run."""

from __future__ import annotations

from typing import Final

import pytest

SEED: Final = pytest.StashKey[int]()
"""In the configuration of every process of a run: all of them collect in the same order."""

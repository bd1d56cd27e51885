"""Makes the package `bench`, which is not installed, importable from wherever the tests are started."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

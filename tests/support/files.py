"""Looking at folders that a running process changes."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path


def files_in(folder: Path, pattern: str) -> list[Path]:
    """Files below `folder` whose name matches.

    A folder that goes away meanwhile is passed over; `Path.rglob` fails on it.
    """
    found = []
    for place, _, names in os.walk(folder):
        found += [Path(place) / name for name in fnmatch.filter(names, pattern)]
    return found

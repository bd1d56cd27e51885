"""How much a query may use. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MEMORY_MB: Final = 1024
"""Default of the engine's memory. Sorts, joins and groups that need more go to the disk."""
SPILL_MB: Final = 20_480
"""Default of the space on the disk for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """QueryLimits of one query."""

    memory_mb: int = MEMORY_MB
    spill_mb: int = SPILL_MB
    spill_folder: str = ""
    """Folder for what does not fit into the memory; empty: the system's temporary folder."""
    threads: int = 0
    """0: one for each core."""
    rows_max: int | None = None
    """Most rows of a result; None: no limit. A result with more is an error."""
    seconds_max: float | None = None
    """Longest duration; None: no limit."""

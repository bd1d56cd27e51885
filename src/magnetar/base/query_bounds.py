"""What queries of SQL may use of a broker's machine. Values only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryBounds:
    """The bounds of one broker."""

    queries_max: int = 2
    """Queries that run at the same time, each in a process of its own; 0: none are answered."""
    seconds_max: float = 60.0
    """Longest time of a query, from its beginning until its last row is sent."""
    memory_mib: int = 768
    """Most memory of a query's process; one with more is killed. The engine gets a part of it."""
    spill_mib: int = 4096
    """Most space on the disk for what does not fit into that memory."""
    rows_max: int = 1_000_000
    """Most rows of a result."""

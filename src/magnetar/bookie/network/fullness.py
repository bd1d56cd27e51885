"""When a bookie takes no more, because its disk is full, and when it does again. Sync, no I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FullnessOptions:
    """Shares of the disk that are in use."""

    full_share: float = 0.95
    """From here on only recoveries write."""
    room_share: float = 0.93
    """Below, everybody does again: lower than `full_share`, or the two would take turns."""

    def __post_init__(self) -> None:
        assert 0 < self.room_share < self.full_share <= 1


class Fullness:
    """Says whether the bookie is read-only."""

    def __init__(self, options: FullnessOptions) -> None:
        self._options = options
        self.read_only = False

    def measured(self, capacity_bytes: int, free_bytes: int, *, has_room: bool) -> bool:
        """Takes a measurement; whether `read_only` changed. `has_room`: the next segment can be had."""
        used = 1.0 if capacity_bytes <= 0 else 1 - free_bytes / capacity_bytes
        before = self.read_only
        if not has_room or used >= self._options.full_share:
            self.read_only = True
        elif used < self._options.room_share:
            self.read_only = False
        return self.read_only != before

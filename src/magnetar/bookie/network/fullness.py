"""When a bookie becomes read-only because its disk is full, and when it becomes writable again. Sync, no
I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FullnessOptions:
    """Thresholds, as used shares of the disk."""

    full_share: float = 0.95
    """From this share on only recoveries may write."""
    room_share: float = 0.93
    """Below this share all clients may write again; lower than `full_share`, so that the state does not
    flap."""

    def __post_init__(self) -> None:
        assert 0 < self.room_share < self.full_share <= 1


class Fullness:
    """Says whether the bookie is read-only."""

    def __init__(self, options: FullnessOptions) -> None:
        self._options = options
        self.read_only = False

    def measured(self, capacity_bytes: int, free_bytes: int, *, has_room: bool) -> bool:
        """Records a measurement; returns whether `read_only` changed. `has_room`: the next segment can be
        created."""
        used = 1.0 if capacity_bytes <= 0 else 1 - free_bytes / capacity_bytes
        before = self.read_only
        if not has_room or used >= self._options.full_share:
            self.read_only = True
        elif used < self._options.room_share:
            self.read_only = False
        return self.read_only != before

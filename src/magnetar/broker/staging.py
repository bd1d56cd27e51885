"""The part of a broker that backups of its data folder use; server/backup does them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Point(Protocol):
    """A point in time of the data folder."""

    @property
    def staged_id(self) -> str:
        """Names it."""
        ...

    @property
    def folder(self) -> Path:
        """The folder of its files, on the broker's machine."""
        ...


class PointsInTime(Protocol):
    """Takes points in time, one at a time."""

    async def begin(self) -> Point:
        """Raises MagnetarError: another one is there, or it cannot be done."""
        ...

    async def renew(self, staged_id: str) -> bool:
        """It is being copied still; False when it is not there any more."""
        ...

    async def end(self, staged_id: str) -> bool:
        """It is copied; False when it was not there."""
        ...

"""Points in time of a data folder that another process of this machine holds, for backups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.runtime.local_calls import CallFailedError, call

BEGIN: Final = "begin a point in time"
RENEW: Final = "renew a point in time"
END: Final = "end a point in time"
_WITHIN_S: Final = 120.0
"""Seconds for a point in time of a large folder: links, and a copy of the metadata, which is read whole."""
_SOON_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class DistantPoint:
    """See `broker.staging.Point`."""

    staged_id: str
    folder: Path


class DistantPoints:
    """See `broker.staging.PointsInTime`. Each method raises CallFailedError."""

    def __init__(self, place: Path) -> None:
        """`place`: where the process that holds the folder answers."""
        self._place = place

    async def begin(self) -> DistantPoint:
        """See `PointsInTime.begin`."""
        taken = await call(self._place, BEGIN, within_s=_WITHIN_S)
        if not isinstance(taken, dict):
            raise CallFailedError("the storage process took no point in time")
        return DistantPoint(str(taken["id"]), Path(str(taken["folder"])))

    async def renew(self, staged_id: str) -> bool:
        """See `PointsInTime.renew`."""
        return bool(await call(self._place, RENEW, within_s=_SOON_S, id=staged_id))

    async def end(self, staged_id: str) -> bool:
        """See `PointsInTime.end`."""
        return bool(await call(self._place, END, within_s=_SOON_S, id=staged_id))

"""Points in time of the data folder, for backups on the broker's machine. Not a part of Pulsar's API."""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Call, Route
from magnetar.admin.calls.errors import NotHereError, NotImplementedHereError
from magnetar.base.errors import MagnetarError
from magnetar.broker.errors import ConflictError
from magnetar.broker.staging import PointsInTime

_P: Final = "/admin/v2/brokers/points-in-time"


def _points(call: Call) -> PointsInTime:
    if (points := call.broker.points_in_time) is None:
        raise NotImplementedHereError(
            "this broker's messages do not lie in its data folder: nothing is kept, or they are on bookies of"
            " a cluster, which have copies of their own"
        )
    return points


async def begin(call: Call) -> object:
    """Takes a point in time of all durable data, removed unless renewed; 409 while another exists."""
    points = _points(call)
    try:
        taken = await points.begin()
    except MagnetarError as error:
        raise ConflictError(str(error)) from error
    return {"id": taken.staged_id, "folder": str(taken.folder)}


async def renew(call: Call) -> None:
    """Keeps a point in time that is being copied; 404 when it was removed."""
    if not await _points(call).renew(call.params["point"]):
        raise NotHereError("that point in time is not there any more: take another one")


async def end(call: Call) -> None:
    """Removes a point in time after it was copied; 404 when it was removed before."""
    if not await _points(call).end(call.params["point"]):
        raise NotHereError("that point in time is not there any more")


ROUTES: list[Route] = [
    ("POST", _P, begin),
    ("POST", f"{_P}/{{point}}", renew),
    ("DELETE", f"{_P}/{{point}}", end),
]

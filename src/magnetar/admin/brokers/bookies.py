"""`/admin/v2/bookies`: bookies and their racks."""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Call, Route
from magnetar.admin.calls.errors import BadRequestError, NotHereError
from magnetar.broker.policies.policies import Policies
from magnetar.metadata import keys

_B: Final = "/admin/v2/bookies"
_GROUP: Final = "default"


async def all_bookies(call: Call) -> object:
    """Registered bookies; the bookie inside this process is not registered."""
    bookies = call.broker.bookies
    names = () if bookies is None else (await bookies()).all()
    return {"bookies": [{"bookieId": name} for name in sorted(names)]}


async def _stored(call: Call) -> Policies:
    # Not through the cache of policies, which only sees changes below /admin.
    return await call.broker.policies.fresh_document(keys.BOOKIE_RACKS) or {}


async def racks(call: Call) -> object:
    """Racks of all bookies, by group."""
    return await _stored(call)


async def rack(call: Call) -> object:
    """The rack of a bookie."""
    for bookies in (await _stored(call)).values():
        if call.params["bookie"] in bookies:
            return bookies[call.params["bookie"]]
    raise NotHereError(f"bookie {call.params['bookie'][:100]!r} stands in no rack known here")


async def set_rack(call: Call) -> None:
    """Sets the rack of a bookie."""
    bookie, group, body = call.params["bookie"], call.query.get("group", _GROUP), call.json_object()
    if not isinstance(body.get("rack"), str) or not body["rack"]:
        raise BadRequestError('the body must be {"rack": "/name", "hostname": "..."}')

    def change(document: Policies) -> None:
        _take_out(document, bookie)
        document.setdefault(group, {})[bookie] = {"rack": body["rack"], "hostname": body.get("hostname")}

    await call.broker.policies.update_document(keys.BOOKIE_RACKS, change)


def _take_out(document: Policies, bookie: str) -> None:
    for group in list(document):
        document[group].pop(bookie, None)
        if not document[group]:
            del document[group]


async def delete_rack(call: Call) -> None:
    """Deletes the rack of a bookie."""
    await rack(call)
    await call.broker.policies.update_document(
        keys.BOOKIE_RACKS, lambda document: _take_out(document, call.params["bookie"])
    )


ROUTES: list[Route] = [
    ("GET", f"{_B}/all", all_bookies),
    ("GET", f"{_B}/racks-info", racks),
    ("GET", f"{_B}/racks-info/{{bookie}}", rack),
    ("POST", f"{_B}/racks-info/{{bookie}}", set_rack),
    ("DELETE", f"{_B}/racks-info/{{bookie}}", delete_rack),
]

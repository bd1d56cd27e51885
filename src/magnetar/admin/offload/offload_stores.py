"""Object stores of history: their owners, and claims. Not a part of Pulsar's API; for superusers."""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Call, Route
from magnetar.admin.calls.errors import NotHereError, NotImplementedHereError
from magnetar.admin.offload.offload import NO_STORE
from magnetar.tiered.guarded import ObjectOwners
from magnetar.tiered.owner import StoreOwner

_STORES: Final = "/admin/v2/offload/stores"


def _owners(call: Call) -> ObjectOwners:
    if call.broker.offloading is None or (owners := call.broker.offloading.storage.owners) is None:
        raise NotImplementedHereError(NO_STORE)
    return owners


def _document(owner: StoreOwner) -> dict[str, object]:
    return {"url": owner.url, "role": owner.role.value, "reason": owner.reason, "changes": owner.epoch}


async def stores(call: Call) -> object:
    """The stores that this broker has used, each `owner`, `read-only` with the reason, or `undecided`."""
    return [_document(owner) for owner in _owners(call)]


async def claim(call: Call) -> object:
    """Claims the store of new copies, or `?url=`.

    `?sweepEarlier=true` allows the deletion of older objects that no log names.
    """
    owners = _owners(call)
    storage = call.broker.offloading.storage if call.broker.offloading is not None else None
    assert storage is not None
    url = call.query.get("url", storage.url)
    # The one of new copies may not have been asked for yet.
    known = {owner.url: owner for owner in owners}
    if url == storage.url and (owned := storage.owned_store()) is not None:
        known[url] = owners.of(owned)
    owner = known.get(url)
    if owner is None:
        raise NotHereError(f"no log of this broker has copies in {url}; {_STORES} names the stores")
    await owner.claim(sweep_earlier=call.flag("sweepEarlier"))
    return _document(owner)


ROUTES: list[Route] = [("GET", _STORES, stores), ("POST", f"{_STORES}/claim", claim)]

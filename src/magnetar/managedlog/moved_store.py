"""The former places of the data folder's object store, from before the folder moved.

Stored lists name a store by its URL, which holds the folder's path. The metadata records each place that the
store has had, so that all of them mean the present one. A place that is not recorded yet (by an earlier
version, or before the first move) is found in the lists: a store of the same name, whose objects are here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from magnetar.managedlog.log_metadata import decode
from magnetar.managedlog.orphans import log_paths
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.keys import OFFLOAD_PLACES
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.tasks import yield_loop
from magnetar.runtime.threads import in_thread
from magnetar.tiered.context import segment_name

_log = logging.getLogger("magnetar.managedlog")

_PER_TURN: Final = 50
_TRIED_MAX: Final = 20
"""Objects of a place that are searched here; retention may have deleted some."""


async def former_places(store: MetadataStore, here: Path, moved: Callable[[], None]) -> Mapping[str, str]:
    """URLs under which lists name the store that is `here`, each with its present URL.

    `moved` is called when the store is here for the first time and was elsewhere before. Raises
    MetadataError, InvalidLogDataError. A damaged record of the places is written anew from the lists: it has
    nothing to say of a place whose objects are not here.
    """
    url = here.as_uri()
    try:
        known = await known_places(store)
    except DamagedDocumentError as error:
        _log.error("earlier places of %s are searched in the lists of logs: %s", url, error)
        known = frozenset()
    if url not in known and await in_thread(here.exists):
        found = {
            place
            for place, objects in (await _places(store, here.name)).items()
            if place != url and await in_thread(partial(_any_here, here, objects))
        }
        known |= found
        if known:
            await in_thread(moved)
        known |= {url}
        # Last: after a crash before this the next start does it again.
        await store.put(OFFLOAD_PLACES, json.dumps(sorted(known)).encode())
    return {place: url for place in known if place != url}


async def known_places(store: MetadataStore) -> frozenset[str]:
    """Every recorded URL of the data folder's store. Raises MetadataError."""
    value = await store.get(OFFLOAD_PLACES)
    return frozenset() if value is None else decode_places(value.data)


def decode_places(data: bytes) -> frozenset[str]:
    """The URLs in a stored value. Raises DamagedDocumentError."""
    try:
        places = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedDocumentError(OFFLOAD_PLACES, "it is not JSON") from error
    if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
        raise DamagedDocumentError(OFFLOAD_PLACES, "it is not a list of URLs")
    return frozenset(places)


async def _places(store: MetadataStore, name: str) -> dict[str, list[str]]:
    """Folders of this name that lists name as a store, with objects of each."""
    found: dict[str, list[str]] = {}
    for number, path in enumerate(await log_paths(store)):
        if number % _PER_TURN == 0:
            await yield_loop()
        value = await store.get(path)
        if value is None:
            continue
        log_name = path.split("/", 2)[2]
        for copy in decode(value.data, path).copies:
            parts = urlsplit(copy.context.url)
            if parts.scheme != "file" or Path(unquote(parts.path)).name != name:
                continue
            objects = found.setdefault(copy.context.url, [])
            if copy.context.segments and len(objects) < _TRIED_MAX:
                objects.append(segment_name(log_name, copy, copy.context.segments[0]))
    return found


def _any_here(here: Path, names: list[str]) -> bool:
    return any((here / name).exists() for name in names)

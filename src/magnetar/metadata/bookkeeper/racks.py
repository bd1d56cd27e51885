"""The racks of bookies, stored as Pulsar does: a node with JSON, `{group: {bookie: {"rack": "/r"}}}`.

Source: Pulsar's rack affinity of bookies (`/bookies`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.metadata.store import MetadataStore

UNKNOWN_RACK: Final = "/default-rack"
"""Rack of bookies without an assignment."""


class RacksError(MetadataError):
    """The node of the racks is damaged."""


def decode_racks(value: bytes) -> dict[str, str]:
    """Racks by bookie. Raises RacksError."""
    try:
        groups = json.loads(value or b"{}")
        return {
            bookie: str(place["rack"])
            for bookies in groups.values()
            for bookie, place in bookies.items()
            if place.get("rack")
        }
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise RacksError(f"the racks of bookies are damaged: {error}") from error


class BookieRacks:
    """The racks as they were last loaded."""

    def __init__(self, store: MetadataStore, path: str) -> None:
        """`path`: the node that holds them."""
        self._store = store
        self._racks: Mapping[str, str] = {}
        self.path: Final = path

    async def load(self) -> None:
        """Reads the racks again. Raises MetadataError, for damage RacksError; the racks then do not
        change."""
        found = await self._store.get(self.path)
        self._racks = {} if found is None else decode_racks(found.data)

    @property
    def any_known(self) -> bool:
        """Whether any bookie has an assigned rack."""
        return bool(self._racks)

    def of(self, bookie: str) -> str:
        """The rack of a bookie."""
        return self._racks.get(bookie, UNKNOWN_RACK)

"""Finds objects that no list of ledgers names, and deletes them.

An attempt is in the stored list before its first object is written, and its objects are deleted before
it is forgotten: an object that nobody names was left by a crash, or by a store that did not answer. When in
doubt an object is kept:
- only names that an attempt gave are looked at;
- what cannot be read or decoded anywhere ends the search;
- an object goes when it is older than a safe age and was named by nobody after it was listed;
- a store that another installation wrote to first is never swept: its objects are named in lists elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import UUID

from magnetar.base.clock import Clock
from magnetar.managedlog.log_metadata import decode
from magnetar.managedlog.orphans import log_paths
from magnetar.metadata.keys import OFFLOAD_OWNER
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, MetadataStore
from magnetar.runtime.tasks import yield_loop
from magnetar.runtime.threads import in_thread
from magnetar.tiered.context import parse_object_name
from magnetar.tiered.errors import MissingObjectError
from magnetar.tiered.storage import TieredStorage
from magnetar.tiered.stores.api import ObjectStore

_log = logging.getLogger("magnetar.managedlog")

OWNER_OBJECT: Final = "magnetar-owner"
"""Object that holds the id of the installation that wrote to a store first."""
_PER_TURN: Final = 50


async def named_attempts(store: MetadataStore) -> set[UUID]:
    """Attempts that a log names, those to be deleted included.

    Raises MetadataError, InvalidLogDataError: then it is not known.
    """
    named: set[UUID] = set()
    for number, path in enumerate(await log_paths(store)):
        if number % _PER_TURN == 0:
            await yield_loop()
        value = await store.get(path)
        if value is not None:
            named.update(copy.context.attempt for copy in decode(value.data, path).copies)
    return named


class OrphanObjects:
    """Looks through the store that new copies go to."""

    def __init__(
        self,
        store: MetadataStore,
        storage: TieredStorage,
        *,
        clock: Clock,
        age_ms: int,
        new_id: Callable[[], UUID],
    ) -> None:
        """`age_ms`: younger objects are left alone."""
        self._store = store
        self._storage = storage
        self._clock = clock
        self._age_ms = age_ms
        self._new_id = new_id

    async def round(self) -> int:
        """One look; how many objects were deleted.

        Raises MetadataError, InvalidLogDataError, StoreError: then nothing more is deleted.
        """
        objects = self._storage.store(self._storage.url)
        old: dict[str, UUID] = {}
        async for found in objects.list(""):
            parsed = parse_object_name(found.name)
            if parsed is not None and self._clock.now_ms() - found.modified_ms >= self._age_ms:
                old[found.name] = parsed[2]
        if not old or not await self._owns(objects):
            return 0
        # After the list: what is named later only makes fewer orphans.
        named = await named_attempts(self._store)
        orphans = [name for name, attempt in old.items() if attempt not in named]
        for name in orphans:
            _log.warning("object %s in %s is named by no log: it is deleted", name, objects.url)
            await objects.delete(name)
            self._storage.figures.orphans += 1
        return len(orphans)

    async def claim(self) -> None:
        """To be called before objects are written: notes whose the store is, when nobody has.

        Raises MetadataError, StoreError.
        """
        objects = self._storage.store(self._storage.url)
        if await _owner(objects) is None:
            await self._write_owner(objects, await self._own_id())

    async def _owns(self, objects: ObjectStore) -> bool:
        owner = await _owner(objects)
        if owner == await self._own_id():
            return True
        _log.warning(
            "the store %s belongs to %s: its objects are not swept",
            objects.url,
            "nobody" if owner is None else f"another installation ({owner[:36]})",
        )
        return False

    async def _own_id(self) -> str:
        while (value := await self._store.get(OFFLOAD_OWNER)) is None:
            try:
                await self._store.put(
                    OFFLOAD_OWNER, str(self._new_id()).encode(), expected_version=MUST_NOT_EXIST
                )
            except BadVersionError:
                continue
        return value.data.decode()

    async def _write_owner(self, objects: ObjectStore, own: str) -> None:
        file = self._storage.work_dir / OWNER_OBJECT

        def write(path: Path) -> None:
            path.write_text(f"{own}\n")

        await in_thread(lambda: write(file))
        try:
            await objects.put(OWNER_OBJECT, file)
        finally:
            await in_thread(lambda: file.unlink(missing_ok=True))


async def _owner(objects: ObjectStore) -> str | None:
    """The installation that wrote to the store first. Raises StoreError."""
    try:
        size = await objects.size(OWNER_OBJECT)
        return (await objects.get(OWNER_OBJECT, 0, size)).decode(errors="replace").strip()
    except MissingObjectError:
        return None

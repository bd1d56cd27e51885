"""A bookie as a member of a cluster: its disk, its registration, its housekeeping."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.base.errors import MagnetarError, MetadataError, StartupError, StorageError
from magnetar.bookie.network.entries import disk_bytes
from magnetar.bookie.network.fullness import Fullness, FullnessOptions
from magnetar.bookie.network.identity import Stamp, stamp_of
from magnetar.bookie.network.keeping import DEFAULT_GRACE_S, Keeper
from magnetar.bookie.network.server import BookieServer, ServerOptions
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import StoreOptions
from magnetar.metadata.bookkeeper.cookies import decode_cookie, encode_cookie
from magnetar.metadata.bookkeeper.registry import (
    BookieIdInUseError,
    BookieRegistry,
    Cookie,
    RegisteredBookie,
    check_bookie_id,
)
from magnetar.metadata.store import MUST_NOT_EXIST
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.durable_file import write_durably
from magnetar.runtime.tasks import Rounds, TaskGroup, pause
from magnetar.runtime.threads import in_thread

_log = logging.getLogger("magnetar.bookie.network")

COOKIE_FILE: Final = "VERSION"
_CLAIM_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """Address and housekeeping of a bookie."""

    data: Path
    more_data: tuple[Path, ...] = ()
    """Further folders, each on a disk of its own; their number and order must never change."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 3181
    """0: a free port, which changes at a restart; then `bookie_id` should be set."""
    advertised: str | None = None
    """Host in the address that clients get; None: `host`."""
    bookie_id: str | None = None
    """None: the advertised host and port, joined by a colon."""
    moves: bool = False
    """Both cookies are in one folder and move with it, so the folders that they name may be former ones."""
    claim_timeout_s: float = 30.0
    """Seconds to wait for the registration of this bookie's previous process to end."""
    collect_interval_s: float = 600.0
    """Seconds between two rounds of deletion."""
    quarantine_grace_s: int = DEFAULT_GRACE_S
    """Seconds until unnamed entries are deleted after the metadata was in doubt."""
    disk_interval_s: float = 10.0
    """Seconds between two measurements of the disk."""
    server: ServerOptions = field(default_factory=ServerOptions)
    store: StoreOptions = field(default_factory=StoreOptions)
    fullness: FullnessOptions = field(default_factory=FullnessOptions)

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders."""
        return (self.data, *self.more_data)


class BookieNode:
    """A running bookie. Use `start`."""

    def __init__(
        self,
        options: NodeOptions,
        registry: BookieRegistry,
        measure: Callable[[Path], tuple[int, int]],
    ) -> None:
        self.bookie_id: str
        self.port: int
        self.server: BookieServer
        self.read_only = False
        self.keeper: Keeper
        self.collected = 0
        """Ledgers deleted since the start."""
        self._asked_read_only = False
        self._announced = False
        """Whether the registration says that the bookie is read-only."""
        self._announcing = asyncio.Lock()
        self._options = options
        self._registry = registry
        self._measure = measure
        self._tasks = TaskGroup("bookie node")
        self._disks = {folder: Fullness(options.fullness) for folder in options.folders}
        self._collecting = Rounds(self._collect, self._tasks.spawn)
        self._fatal: asyncio.Future[StorageError] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls,
        options: NodeOptions,
        registry: BookieRegistry,
        *,
        measure: Callable[[Path], tuple[int, int]] = disk_bytes,
    ) -> BookieNode:
        """Opens the disk, serves, and registers the bookie. `measure`: total and free bytes of the disk.

        Raises StartupError: the disk is not this bookie's, is in use, or the id or port is taken;
        MetadataError.
        """
        node = cls(options, registry, measure)
        stores: list[SegmentStore] = []
        try:
            for folder in options.folders:
                on_fatal = node._store_failed
                stores.append(await SegmentStore.open(folder, options=options.store, on_fatal=on_fatal))
            node.server = await BookieServer.open(*stores, options=options.server)
        except BaseException as error:
            for store in stores:
                await store.close()
            if isinstance(error, StorageError):
                folders = ", ".join(map(str, options.folders))
                raise StartupError(f"{folders}: {error}") from error
            raise
        try:
            node.keeper = Keeper(options.data, registry, SystemClock(), grace_s=options.quarantine_grace_s)
            await node._join()
        except BaseException:
            await node.server.close()
            raise
        node._tasks.every(options.disk_interval_s, node.look_at_disk)
        node._tasks.every(options.collect_interval_s, node.collect_garbage)
        return node

    async def _join(self) -> None:
        options = self._options
        try:
            self.port = await self.server.listen(options.host, options.port)
        except OSError as error:
            raise StartupError(f"cannot listen on {options.host}:{options.port}: {error}") from error
        advertised = options.advertised or options.host
        self.bookie_id = options.bookie_id or f"{advertised}:{self.port}"
        check_bookie_id(self.bookie_id)
        await self._check_disk()
        for folder, disk in self._disks.items():
            disk.measured(*self._measure(folder), has_room=True)
        self._switch(read_only=self.is_full)
        await self._register(RegisteredBookie.at(self.bookie_id, advertised, self.port))

    async def _check_disk(self) -> None:
        folders = tuple(str(folder.resolve()) for folder in self._options.folders)
        instance_id = await self._registry.instance_id()
        mine = Cookie(self.bookie_id, folders, folders, instance_id)
        stored = await self._registry.cookie(self.bookie_id)
        in_store = None if stored is None else stored[0]
        stamps: dict[Path, Stamp] = {}
        for folder in self._options.folders:
            file = folder / COOKIE_FILE
            on_disk = decode_cookie(file.read_bytes()) if file.exists() else None
            stamps[file] = stamp_of(
                mine,
                on_disk,
                in_store,
                disk_is_empty=not self.server.known_ledgers(),
                moves=self._options.moves,
            )
        for file, stamp in stamps.items():
            if stamp is Stamp.BOTH:
                await in_thread(write_durably, file, encode_cookie(mine))
        if set(stamps.values()) != {Stamp.NOTHING}:
            await self._registry.put_cookie(mine, expected_version=MUST_NOT_EXIST)

    async def _register(self, info: RegisteredBookie) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._options.claim_timeout_s
        while True:
            try:
                # What was announced, not what the disk has become meanwhile: else the change would not be
                read_only = self.read_only
                await self._registry.register(info, read_only=read_only)
                self._announced = read_only
                return
            except BookieIdInUseError as error:
                if loop.time() > deadline_s:
                    raise StartupError(str(error)) from error
            await pause(_CLAIM_PAUSE_S)

    # -- housekeeping -----------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether any disk is full: its ledgers could not be written."""
        return any(disk.read_only for disk in self._disks.values())

    async def look_at_disk(self) -> None:
        """Makes the bookie read-only when any disk is full, and writable when none is."""
        for store, (folder, disk) in zip(self.server.entries.stores, self._disks.items(), strict=True):
            room = store.failure is None and store.supply.set_aside()
            if disk.measured(*self._measure(folder), has_room=room):
                is_full = "is full: read-only" if disk.read_only else "has free space again"
                _log.warning("the disk of %s %s", folder, is_full)
                self._switch(read_only=self.is_full)
        if self.is_full or self.keeper.has_decisions:
            self._collecting.ask()
        await self._announce()

    def _switch(self, *, read_only: bool) -> None:
        # A bookie that lost its state may have forgotten fences: it serves reads only.
        self.read_only = read_only or self._asked_read_only or not self.server.entries.knows_all
        self.server.ledgers.read_only = self.read_only

    async def ask_read_only(self, *, read_only: bool) -> None:
        """Makes the bookie read-only until the next start, or writable again as far as its disks allow."""
        self._asked_read_only = read_only
        self._switch(read_only=self.is_full)
        await self._announce()

    @property
    def is_collecting(self) -> bool:
        """Whether a round of deletion runs."""
        return self._collecting.is_running

    @property
    def has_failed(self) -> bool:
        """Whether the disk has failed."""
        return self._fatal.done()

    async def _announce(self) -> None:
        """Updates the registration; a failure is repeated at the next measurement."""
        info = RegisteredBookie.at(self.bookie_id, self._options.advertised or self._options.host, self.port)
        # One at a time, and as often as the disk fills up or is freed meanwhile: the answer to an earlier
        # change must not be the last word.
        async with self._announcing:
            while self._announced != (read_only := self.read_only):
                try:
                    await self._registry.register(info, read_only=read_only)
                except MetadataError as error:  # the next measurement tries again: `_announced` is unchanged
                    _log.warning("the registration could not be changed: %s", error)
                    return
                self._announced = read_only

    async def collect_garbage(self) -> None:
        """Starts a round of deletion soon."""
        self._collecting.ask()

    async def _collect(self) -> None:
        server = self.server
        try:
            count = await self.keeper.round(self.bookie_id, server.known_ledgers(), server.delete)
        except (OSError, MagnetarError) as error:
            # Ledgers that were not checked are kept; the next round checks them.
            _log.warning("deleted ledgers could not be found: %s", error)
            return
        self.collected += count
        if count:
            _log.info("%d deleted ledgers were collected", count)

    # -- the end ------------------------------------------------------------------------------------

    def _store_failed(self, error: StorageError) -> None:
        if not self._fatal.done():
            self._fatal.set_result(error)

    async def failed(self) -> StorageError:
        """Waits until a disk fails: then the process must end, so that clients use other bookies."""
        return await asyncio.shield(self._fatal)

    async def close(self) -> None:
        """Unregisters the bookie and closes the disk."""
        await self._tasks.close()
        try:
            await self._registry.unregister(self.bookie_id)
        except (MetadataError, OSError) as error:  # it is ephemeral: the end of the session removes it
            _log.warning("the registration ends with its session: %s", error)
        await self.server.close()

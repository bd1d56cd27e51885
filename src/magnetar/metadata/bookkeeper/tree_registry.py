"""Bookies in BookKeeper's tree, on any metadata store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.base.ids import LedgerId
from magnetar.metadata.bookkeeper.bookkeeper_tree import READ_ONLY, BookKeeperTree
from magnetar.metadata.bookkeeper.cookies import decode_cookie, encode_cookie
from magnetar.metadata.bookkeeper.listing import ledger_ids
from magnetar.metadata.bookkeeper.registry import (
    BookieIdInUseError,
    ClusterNotInitializedError,
    Cookie,
    LiveBookies,
    RegisteredBookie,
    check_bookie_id,
)
from magnetar.metadata.bookkeeper.service_info import decode_info, encode_info
from magnetar.metadata.lasting import in_lasting_session
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    Change,
    MetadataStore,
    NotFoundError,
    Notification,
    SessionEvent,
)
from magnetar.runtime.tasks import TaskGroup, happens_within, pause

_log = logging.getLogger("magnetar.metadata")

CLAIM_TIMEOUT_S: Final = 30.0
"""Seconds that a registration waits for the last session of the same bookie to end: longer than a session
outlives its process."""

_RETRY_S: Final = 1.0


class TreeBookieRegistry:
    """A `BookieRegistry`; made on the event loop, ended by `close`, which leaves the store open."""

    def __init__(
        self, store: MetadataStore, tree: BookKeeperTree, *, claim_timeout_s: float = CLAIM_TIMEOUT_S
    ) -> None:
        """`claim_timeout_s`: seconds that `register` waits while another session holds the id."""
        self._store = store
        self._tree = tree
        self._claim_timeout_s = claim_timeout_s
        self._registered: dict[str, tuple[RegisteredBookie, bool]] = {}
        self._tasks = TaskGroup("bookie registration")
        self._session_events = 0
        self._unwatch = store.watch_session(self._session_changed)

    @property
    def tree(self) -> BookKeeperTree:
        """The paths of this cluster."""
        return self._tree

    async def instance_id(self) -> str:
        value = await self._store.get(self._tree.instance_id)
        if value is None:
            raise ClusterNotInitializedError(f"{self._tree.instance_id}: no cluster was initialized here")
        return value.data.decode()

    async def register(self, bookie: RegisteredBookie, *, read_only: bool = False) -> None:
        check_bookie_id(bookie.bookie_id)
        # Until it is recorded as registered, it would not be renewed after a lost session.
        await in_lasting_session(self._store, lambda: self._claim(bookie, read_only=read_only))
        self._registered[bookie.bookie_id] = (bookie, read_only)
        await self._release(bookie.bookie_id, read_only=not read_only)

    async def unregister(self, bookie_id: str) -> None:
        self._registered.pop(bookie_id, None)
        await self._release(bookie_id, read_only=False)
        await self._release(bookie_id, read_only=True)

    async def bookies(self) -> LiveBookies:
        writable = await self._store.children(self._tree.available)
        read_only = await self._store.children(self._tree.read_only)
        return LiveBookies(frozenset(writable) - {READ_ONLY}, frozenset(read_only))

    def watch_bookies(self, changed: Callable[[], None]) -> Callable[[], None]:
        parents = (self._tree.available, self._tree.read_only)

        def on_change(notification: Notification) -> None:
            if notification.change is Change.CHILDREN_CHANGED and notification.path in parents:
                changed()

        def on_session(event: SessionEvent) -> None:
            if event in (SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED):
                changed()

        unwatch = self._store.watch(self._tree.available, on_change)
        unwatch_session = self._store.watch_session(on_session)

        def cancel() -> None:
            unwatch()
            unwatch_session()

        return cancel

    async def info(self, bookie_id: str) -> RegisteredBookie | None:
        for read_only in (False, True):
            value = await self._store.get(self._tree.registration(bookie_id, read_only=read_only))
            if value is not None:
                return decode_info(bookie_id, value.data)
        return None

    async def cookie(self, bookie_id: str) -> tuple[Cookie, int] | None:
        await self._store.sync()
        value = await self._store.get(self._tree.cookie(bookie_id))
        return None if value is None else (decode_cookie(value.data), value.stat.version)

    async def put_cookie(self, cookie: Cookie, *, expected_version: int) -> int:
        check_bookie_id(cookie.bookie_id)
        path = self._tree.cookie(cookie.bookie_id)
        return (await self._store.put(path, encode_cookie(cookie), expected_version=expected_version)).version

    async def delete_cookie(self, bookie_id: str, *, expected_version: int) -> None:
        await self._store.delete(self._tree.cookie(bookie_id), expected_version=expected_version)

    async def generation(self, bookie_id: str) -> int | None:
        """The version of the cookie; each write adds 1, also one that does not change the value."""
        found = await self.cookie(bookie_id)
        return None if found is None else found[1]

    async def raise_generation(self, bookie_id: str, seen: int) -> int:
        found = await self.cookie(bookie_id)
        if found is None:
            raise NotFoundError(self._tree.cookie(bookie_id))
        return await self.put_cookie(found[0], expected_version=seen)

    def connection_id(self) -> int:
        return self._session_events

    def doubt(self) -> str:
        return ""

    async def known_bookies(self) -> frozenset[str]:
        await self._store.sync()
        return frozenset(await self._store.children(self._tree.cookies))

    async def ledger_exists(self, ledger_id: LedgerId) -> bool:
        if ledger_id >= self._tree.layout.id_end:
            # A client of a bookie may have written it all the same.
            return False
        await self._store.sync()
        return await self._store.exists(self._tree.ledger(ledger_id))

    def ledger_ids(self) -> AsyncIterator[LedgerId]:
        return ledger_ids(self._store, self._tree)

    async def close(self) -> None:
        """Stops renewing registrations. They stay until the store's session ends."""
        self._unwatch()
        self._registered.clear()
        await self._tasks.close()

    async def _claim(self, bookie: RegisteredBookie, *, read_only: bool) -> None:
        """Makes the bookie's node, or takes over the node that this session made before."""
        path = self._tree.registration(bookie.bookie_id, read_only=read_only)
        gone = asyncio.Event()
        unwatch = self._store.watch(path, lambda _: gone.set())
        try:
            while True:
                gone.clear()
                try:
                    await self._store.put(
                        path, encode_info(bookie), expected_version=MUST_NOT_EXIST, ephemeral=True
                    )
                    return
                except BadVersionError:
                    held = await self._store.get(path)
                if held is not None and held.stat.created_by_self:
                    await self._store.put(path, encode_info(bookie), expected_version=held.stat.version)
                    return
                # Most likely it is this bookie's own last process, whose session has not ended yet.
                if held is not None and not await happens_within(gone, self._claim_timeout_s):
                    raise BookieIdInUseError(bookie.bookie_id)
        finally:
            unwatch()

    async def _release(self, bookie_id: str, *, read_only: bool) -> None:
        path = self._tree.registration(bookie_id, read_only=read_only)
        value = await self._store.get(path)
        if value is None or not value.stat.created_by_self:
            return
        try:
            await self._store.delete(path)
        except NotFoundError:  # the end of the session took it
            return

    def _session_changed(self, event: SessionEvent) -> None:
        self._session_events += 1
        if event is SessionEvent.SESSION_LOST and self._registered:
            names = ", ".join(sorted(self._registered))
            _log.warning("the session ended, and with it the registration of bookie %s", names)
        if event is SessionEvent.SESSION_RENEWED:
            for bookie, read_only in self._registered.values():
                self._tasks.spawn(self._bring_back(bookie, read_only=read_only))

    async def _bring_back(self, bookie: RegisteredBookie, *, read_only: bool) -> None:
        while self._registered.get(bookie.bookie_id) == (bookie, read_only):
            try:
                await self._claim(bookie, read_only=read_only)
                _log.warning("bookie %s is registered again", bookie.bookie_id)
                return
            except MetadataError as error:
                _log.warning("bookie %s is not registered again yet: %s", bookie.bookie_id, error)
                await pause(_RETRY_S)

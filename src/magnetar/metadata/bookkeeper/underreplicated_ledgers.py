"""The list of ledgers that lack copies, with its locks and switches, on any metadata store."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import MetadataError
from magnetar.base.ids import LedgerId
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.underreplication import (
    AuditCheck,
    UnderreplicatedLedger,
    UnderreplicationPaths,
    check_layout,
    decode_check_time,
    decode_mark,
    encode_check_time,
    encode_layout,
    encode_lock,
    encode_mark,
)
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    MetadataStore,
    NotFoundError,
    Notification,
    SessionEvent,
)

_LEVELS: Final = 4
_CLOCKS_MS: Final = 300_000
"""Milliseconds by which the clocks of two machines of a cluster may differ."""


class UnderreplicatedLedgers:
    """Marks ledgers, and gives them to one worker at a time."""

    def __init__(self, store: MetadataStore, tree: BookKeeperTree, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.paths: Final = UnderreplicationPaths(tree)

    async def prepare(self) -> None:
        """Makes the missing nodes of auto-recovery. Raises MetadataError."""
        for path, value in (
            (self.paths.layout, encode_layout()),
            (self.paths.ledgers, b""),
            (self.paths.locks, b""),
            (self.paths.election, b""),
        ):
            with contextlib.suppress(BadVersionError):  # another auditor made it first
                await self._store.put(path, value, expected_version=MUST_NOT_EXIST)
        found = await self._store.get(self.paths.layout)
        if found is not None:
            check_layout(found.data)

    # -- marks ---------------------------------------------------------------------------------

    async def mark(self, ledger_id: LedgerId, replicas: frozenset[str]) -> None:
        """Notes that bookies have lost their copies of a ledger; adds them to those noted before."""
        path = self.paths.ledger(ledger_id)
        while True:
            found = await self._store.get(path)
            if found is None:
                known, version = UnderreplicatedLedger(ledger_id, (), self._clock.now_ms()), MUST_NOT_EXIST
            else:
                known, version = decode_mark(ledger_id, found.data), found.stat.version
            # The mark is written again even when nothing changed: a worker that has repaired the old one
            # finds a newer version and leaves the mark.
            every = (*known.replicas, *sorted(replicas - set(known.replicas)))
            value = encode_mark(UnderreplicatedLedger(ledger_id, every, known.marked_ms))
            with contextlib.suppress(BadVersionError):  # another auditor wrote: read it again
                await self._store.put(path, value, expected_version=version)
                return

    async def get(self, ledger_id: LedgerId) -> tuple[UnderreplicatedLedger, int] | None:
        """The mark and its version."""
        found = await self._store.get(self.paths.ledger(ledger_id))
        return None if found is None else (decode_mark(ledger_id, found.data), found.stat.version)

    async def marked(self) -> AsyncIterator[LedgerId]:
        """Every marked ledger, in no order."""
        folders = [(self.paths.ledgers, 0)]
        while folders:
            folder, level = folders.pop()
            for name in await self._store.children(folder):
                if level < _LEVELS:
                    folders.append((f"{folder}/{name}", level + 1))
                elif (ledger_id := self.paths.ledger_id_of(name)) is not None:
                    yield ledger_id

    async def replicated(self, ledger_id: LedgerId, version: int) -> bool:
        """Removes the mark unless it was marked again since `version`; returns whether it is gone."""
        try:
            await self._store.delete(self.paths.ledger(ledger_id), expected_version=version)
        except NotFoundError:
            return True
        except BadVersionError:
            return False
        return True

    # -- locks ---------------------------------------------------------------------------------

    async def lock(self, ledger_id: LedgerId, worker_id: str) -> bool:
        """Takes the ledger for this worker, for as long as its session lasts; False when another has it.

        After an error the ledger may be locked: call again to find out; `unlock` releases it.
        """
        value = encode_lock(worker_id)
        try:
            await self._store.put(
                self.paths.lock(ledger_id), value, expected_version=MUST_NOT_EXIST, ephemeral=True
            )
        except BadVersionError:
            found = await self._store.get(self.paths.lock(ledger_id))
            return found is not None and found.stat.created_by_self and found.data == value
        return True

    async def locked(self) -> frozenset[LedgerId]:
        """Ledgers that workers have locked."""
        names = await self._store.children(self.paths.locks)
        found = (self.paths.ledger_id_of(name) for name in names)
        return frozenset(ledger_id for ledger_id in found if ledger_id is not None)

    async def unlock(self, ledger_id: LedgerId) -> None:
        """Releases a ledger. Raises MetadataError."""
        found = await self._store.get(self.paths.lock(ledger_id))
        # After a lost session another worker may hold it by now.
        if found is not None and found.stat.created_by_self:
            with contextlib.suppress(NotFoundError):  # the end of an earlier session took it
                await self._store.delete(self.paths.lock(ledger_id))

    # -- switches ------------------------------------------------------------------------------

    async def enabled(self) -> bool:
        """Whether auto-recovery is switched on."""
        return not await self._store.exists(self.paths.disable)

    async def lost_bookie_delay_s(self) -> int | None:
        """Seconds to wait for a single lost bookie; None when it is not set."""
        found = await self._store.get(self.paths.lost_bookie_delay)
        if found is None:
            return None
        if not found.data.isdigit():
            raise MetadataError(f"{self.paths.lost_bookie_delay}: no number: {found.data[:32]!r}")
        return int(found.data)

    async def propose_lost_bookie_delay(self, seconds: int) -> None:
        """Sets the delay when it is not set."""
        with contextlib.suppress(BadVersionError):  # another process has set it: that value stays
            path = self.paths.lost_bookie_delay
            await self._store.put(path, str(seconds).encode(), expected_version=MUST_NOT_EXIST)

    async def set_lost_bookie_delay(self, seconds: int) -> None:
        """Sets the delay; setting the same value again makes the auditor look for lost bookies at once."""
        await self._store.put(self.paths.lost_bookie_delay, str(seconds).encode())

    async def enable(self, *, enabled: bool) -> None:
        """Switches auto-recovery of the whole cluster on or off."""
        if not enabled:
            await self._store.put(self.paths.disable, b"")
            return
        with contextlib.suppress(NotFoundError):  # it is on already
            await self._store.delete(self.paths.disable)

    async def note_checked(self, check: AuditCheck) -> None:
        """Notes the present time as that of the last check of all ledgers."""
        await self._store.put(self.paths.checked(check), encode_check_time(self._clock.now_ms()))

    async def since_checked_s(self, check: AuditCheck) -> float | None:
        """Seconds since any auditor last did the check; None: never, or noted by a clock that was ahead."""
        found = await self._store.get(self.paths.checked(check))
        if found is None or (time_ms := decode_check_time(found.data)) < 0:
            return None
        since_ms = self._clock.now_ms() - time_ms
        # A time noted by a clock that was a year ahead would delay the next check by a year.
        return None if since_ms < -_CLOCKS_MS else max(0.0, since_ms / 1_000)

    def watch(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Calls back, on the event loop, with the path below underreplication that may have changed, or the
        root of it after a reconnection; returns the cancel."""

        def on_change(notification: Notification) -> None:
            changed(notification.path)

        def on_session(event: SessionEvent) -> None:
            if event in (SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED):
                changed(self.paths.root)

        unwatch = self._store.watch(self.paths.root, on_change)
        unwatch_session = self._store.watch_session(on_session)

        def cancel() -> None:
            unwatch()
            unwatch_session()

        return cancel

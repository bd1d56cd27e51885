"""Bytes that were read from producers and are not durable yet: over all connections, and of each tenant.

Above the limit of all, producers are not read any more; reading continues once half of it is free.

While one tenant publishes it may use all of it. As soon as a second one does, each has a small part
(`SHARED_BYTES` among them all): bytes of a tenant that are not durable delay the next message of all others,
in the group commit and in the event loop, so a few milliseconds of it must be enough. That is still a full
group for each sync. A tenant counts as publishing for some seconds after its last message, so that one that
sends now and then finds the line short. `docs/decisions/0011-tenants-share-the-intake.md` has the figures.
"""

from __future__ import annotations

from typing import Final, Protocol

SHARED_BYTES: Final = 256 << 10
"""Bytes of all tenants together while several publish: less than a millisecond of a disk with 400 MB a
second, and enough messages of 1 KiB for a cheap commit."""
SHARE_BYTES_MIN: Final = 128 << 10
"""Least bytes of a tenant, however many tenants there are."""
TICK_S: Final = 0.25
"""Between two calls of `tick`."""
ACTIVE_TICKS: Final = 20
"""Ticks that a tenant counts as publishing after its last message."""
BUSY_BYTES: Final = 16 << 10
"""A connection that brings this many bytes with one read is paused with its tenant, before its next read."""


class PausableConnection(Protocol):
    """A connection."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None:
        """Reads on, unless something else forbids it."""


class TenantShare:
    """Bytes in flight of one tenant's connections. Compared by identity."""

    __slots__ = ("busy", "bytes_used", "held", "seen", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.bytes_used = 0
        """Bytes that were read and are not durable yet."""
        self.seen = -ACTIVE_TICKS - 1
        """The tick in which it published last."""
        self.busy: dict[PausableConnection, int] = {}
        """Connections that bring much at a time, since the share was not over its limit for a tick, and how
        many bytes the last time."""
        self.held: dict[PausableConnection, int] = {}
        """Connections that are not read until the share has budget, the longest waiting first; how many bytes
        they brought the last time."""


class Intake:
    """The budget of a broker."""

    __slots__ = ("_limit", "_paused", "_shares", "_tick", "bytes_max", "bytes_used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        """Bytes that were read from producers and are not durable yet."""
        self._paused: set[PausableConnection] = set()
        self._shares: dict[str, TenantShare] = {}
        self._limit = bytes_max
        self._tick = 0

    def share(self, tenant: str) -> TenantShare:
        """The share of a tenant; all of its connections have the same one."""
        share = self._shares.get(tenant)
        if share is None:
            share = self._shares[tenant] = TenantShare(tenant)
        return share

    @property
    def active(self) -> int:
        """Tenants that publish, or did some seconds ago."""
        since = self._tick - ACTIVE_TICKS
        return sum(1 for share in self._shares.values() if share.bytes_used or share.seen >= since)

    @property
    def share_bytes_max(self) -> int:
        """Bytes that each tenant may have in flight now."""
        return self._limit

    def tick(self) -> None:
        """Once every `TICK_S`: a tenant that has not published for a while frees its part for others."""
        self._tick += 1
        for share in self._shares.values():
            # A tenant that was released and brought nothing has occupied a place for no longer than this.
            self._let_go(share, self.bytes_max)
            if not share.held:
                share.busy.clear()
        self._divide()

    def _divide(self) -> None:
        active = self.active
        before = self._limit
        shared = max(SHARE_BYTES_MIN, SHARED_BYTES // max(1, active))
        self._limit = self.bytes_max if active < 2 else min(self.bytes_max, shared)
        if self._limit > before:
            for share in self._shares.values():
                self._let_go(share, self._limit)

    def took(self, source: PausableConnection, share: TenantShare, size_bytes: int) -> None:
        """A connection read this many bytes that are not durable yet."""
        self.bytes_used += size_bytes
        share.bytes_used += size_bytes
        if share.seen != self._tick:
            idle, share.seen = share.seen < self._tick - ACTIVE_TICKS, self._tick
            if idle:
                self._divide()
        if size_bytes >= BUSY_BYTES:
            share.busy[source] = size_bytes
        if share.bytes_used > self._limit:
            self._hold(source, size_bytes, share)
        if self.bytes_used > self.bytes_max:
            source.pause_reading()
            self._paused.add(source)

    def _hold(self, source: PausableConnection, size_bytes: int, share: TenantShare) -> None:
        # All that bring much: each would take one more read before it is its turn to be paused, and hundreds
        # of connections would take the room of all others at once.
        for one, size in share.busy.items():
            if one not in share.held:
                share.held[one] = size
                one.pause_reading()
        if source not in share.held:
            share.held[source] = size_bytes
            source.pause_reading()

    def gave_back(self, share: TenantShare, size_bytes: int) -> None:
        """This many of these bytes are durable or were refused."""
        self.bytes_used -= size_bytes
        share.bytes_used -= size_bytes
        if share.held:
            self._let_go(share, self._limit)
        if self._paused and self.bytes_used < self.bytes_max // 2:
            paused, self._paused = self._paused, set()
            for source in paused:
                source.resume_reading()

    def _let_go(self, share: TenantShare, bytes_max: int) -> None:
        """Lets connections be read again, as many as will bring `bytes_max` with what is in flight."""
        if share.bytes_used > self._limit // 2:
            return
        room = bytes_max - share.bytes_used
        while share.held and room > 0:
            source = next(iter(share.held))
            room -= share.held.pop(source)
            source.resume_reading()

    def left(self, source: PausableConnection, share: TenantShare | None) -> None:
        """The connection is closed; its bytes are released as they become durable."""
        self._paused.discard(source)
        if share is not None:
            share.busy.pop(source, None)
            share.held.pop(source, None)

    def holds(self, source: PausableConnection, share: TenantShare | None) -> bool:
        """Whether the connection waits for others' bytes to become durable."""
        return source in self._paused or (share is not None and source in share.held)

"""Follows the changes of keys. No change is missed when a connection breaks, because etcd keeps a history."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from magnetar.base.errors import MetadataError
from magnetar.metadata.etcd.etcd_client import RETRY_S, CallLostError, EtcdClient
from magnetar.metadata.etcd.etcd_pb2 import (
    Event,
    RangeRequest,
    RangeResponse,
    WatchRequest,
    WatchResponse,
)
from magnetar.metadata.etcd.followed import CompactedError, FollowedRange, FollowedRanges
from magnetar.runtime.tasks import pause

_log = logging.getLogger("magnetar.metadata")


class ChangeFollower:
    """One stream of the changes of all ranges that are followed."""

    def __init__(
        self,
        client: EtcdClient,
        on_events: Callable[[str, Sequence[Event]], None],
        on_gap: Callable[[], None],
    ) -> None:
        """`on_events` gets what a range was followed as, and its changes; `on_gap` is called when changes
        were missed because etcd has compacted its history."""
        self.ranges = FollowedRanges()
        client.named = self.ranges.knows
        self._client = client
        self._on_events = on_events
        self._on_gap = on_gap
        self._moved = asyncio.Event()
        self._asked = asyncio.Event()
        self._streams = 0

    async def begin(self) -> None:
        """Learns the revision from which changes are followed. Raises StoreUnreachableError."""
        await self._client.call("KV/Range", RangeRequest(key=b"/", count_only=True), RangeResponse)

    def follow(self, name: str, ranges: Iterable[tuple[bytes, bytes]]) -> None:
        """See `FollowedRanges.follow`."""
        self.ranges.follow(name, ranges)
        self._asked.set()

    def unfollow(self, name: str) -> None:
        """See `FollowedRanges.unfollow`."""
        self.ranges.unfollow(name)
        self._asked.set()
        # Nothing more comes of it: its waiters look again.
        self._moved.set()

    async def seen(self, concerned: Iterable[FollowedRange], revision: int, timeout_s: float) -> None:
        """Waits until the changes of these ranges up to `revision` were told, for `timeout_s` seconds at
        most."""
        left = list(concerned)
        # The time is up: the caller continues, as the docstring says.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while left := [each for each in left if self.ranges.is_behind(each, revision)]:
                    self._moved.clear()
                    await self._moved.wait()

    async def run(self) -> None:
        """Tells changes until cancelled."""
        while True:
            try:
                await self._follow_stream()
            except CompactedError:
                self._on_gap()
            except CallLostError:  # the loop is the retry, from the last revisions that were told
                _log.debug("the stream of changes broke")
            except MetadataError:  # the loop is the retry; logged in full, as a retry may not help
                _log.exception("etcd refuses a watch")
            await pause(RETRY_S)

    async def _follow_stream(self) -> None:
        self.ranges.begin_stream()
        self._streams += 1
        stream = self._client.stream(
            "Watch/Watch", self._requests(self._streams), WatchRequest, WatchResponse
        )
        async with contextlib.aclosing(stream):
            async for answer in stream:
                if (told := self.ranges.take(answer)) is not None:
                    self._on_events(told[0].name, told[1])
                self._moved.set()

    async def _requests(self, stream: int) -> AsyncIterator[WatchRequest]:
        """What this stream is to follow; it does not end before it, as the answers would end as well."""
        while stream == self._streams:
            if (request := self.ranges.next_request()) is not None:
                yield request
                continue
            self._asked.clear()
            await self._asked.wait()

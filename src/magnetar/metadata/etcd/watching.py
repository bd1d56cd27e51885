"""Follows the changes of keys. No change is missed when a connection breaks, because etcd keeps a history."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from magnetar.base.errors import MetadataError
from magnetar.metadata.etcd.etcd_client import RETRY_S, CallLostError, EtcdClient
from magnetar.metadata.etcd.etcd_pb2 import (
    Event,
    RangeRequest,
    RangeResponse,
    WatchCreateRequest,
    WatchRequest,
    WatchResponse,
)
from magnetar.runtime.tasks import pause

_log = logging.getLogger("magnetar.metadata")


class RevisionFollower:
    """One stream of changes below a key."""

    def __init__(
        self,
        client: EtcdClient,
        first: bytes,
        end: bytes,
        on_events: Callable[[list[Event]], None],
        on_gap: Callable[[], None],
    ) -> None:
        """`on_gap` is called when changes were missed because etcd has compacted its history."""
        self._client = client
        self._first = first
        self._end = end
        self._on_events = on_events
        self._on_gap = on_gap
        self._revision = 0
        self._moved = asyncio.Event()

    async def begin(self) -> None:
        """Reads the revision from which changes are followed. Raises StoreUnreachableError."""
        request = RangeRequest(key=self._first, count_only=True)
        self._revision = (await self._client.call("KV/Range", request, RangeResponse)).header.revision

    async def seen(self, revision: int, timeout_s: float) -> None:
        """Waits until `on_events` got the changes up to `revision`, a change below the key, or for
        `timeout_s` seconds at most."""
        # The time is up: the caller continues, as the docstring says.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._revision < revision:
                    self._moved.clear()
                    await self._moved.wait()

    async def follow(self) -> None:
        """Passes changes to `on_events` until cancelled."""
        while True:
            try:
                await self._follow_stream()
            except CallLostError:  # the loop is the retry, from the last revision passed on
                _log.debug("the stream of changes broke")
            except MetadataError:  # the loop is the retry; logged in full, as a retry may not help
                _log.exception("etcd refuses a watch")
            await pause(RETRY_S)

    async def _follow_stream(self) -> None:
        async def requests() -> AsyncIterator[WatchRequest]:
            yield WatchRequest(
                create_request=WatchCreateRequest(
                    key=self._first, range_end=self._end, start_revision=self._revision + 1
                )
            )
            # A request stream that ends would end the answers as well.
            await asyncio.Event().wait()

        stream = self._client.stream("Watch/Watch", requests(), WatchRequest, WatchResponse)
        async with contextlib.aclosing(stream):
            async for answer in stream:
                if answer.compact_revision:
                    self._move(max(self._revision, answer.compact_revision - 1))
                    self._on_gap()
                    return
                if answer.canceled:
                    raise CallLostError(f"the stream of changes was cancelled: {answer.cancel_reason}")
                if answer.events:
                    self._on_events(list(answer.events))
                    self._move(max(event.kv.mod_revision for event in answer.events))

    def _move(self, revision: int) -> None:
        self._revision = revision
        self._moved.set()

"""The session: a lease that is kept alive, and replaced when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from magnetar.base.errors import MetadataError
from magnetar.metadata.etcd.etcd_client import RETRY_S, CallLostError, EtcdClient
from magnetar.metadata.etcd.etcd_pb2 import (
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
    LeaseRevokeRequest,
    LeaseRevokeResponse,
)
from magnetar.metadata.store import SessionEvent
from magnetar.runtime.tasks import pause

_log = logging.getLogger("magnetar.metadata")


class Lease:
    """The lease to which ephemeral values belong."""

    def __init__(self, client: EtcdClient, ttl_s: int, on_session: Callable[[SessionEvent], None]) -> None:
        """`ttl_s`: seconds that ephemeral values stay without contact to etcd."""
        self._client = client
        self._ttl_s = ttl_s
        self._on_session = on_session
        self._lost_contact = False
        self.id = 0
        """Id of the lease; 0 before `begin`."""

    async def begin(self) -> None:
        """Takes a lease. Raises StoreUnreachableError, MetadataError."""
        # A repetition after a lost answer may leave a lease behind, to which no value belongs.
        granted = await self._client.call(
            "Lease/LeaseGrant", LeaseGrantRequest(TTL=self._ttl_s), LeaseGrantResponse
        )
        self.id = granted.ID

    async def keep(self) -> None:
        """Keeps the lease alive, and takes a new one when it is lost, until cancelled."""
        while True:
            try:
                await self._beat()
            except CallLostError as error:
                if not self._lost_contact:
                    self._lost_contact = True
                    _log.warning("the session with etcd has no contact: %s", error)
                    self._on_session(SessionEvent.CONNECTION_LOST)
            except MetadataError:  # said once; the loop is the retry until the lease runs out
                _log.exception("etcd refuses to keep the session")
            await pause(RETRY_S)

    async def end(self) -> None:
        """Revokes the lease: ephemeral values vanish."""
        if self.id:
            with contextlib.suppress(MetadataError):  # a lease that is not revoked expires
                await self._client.once(
                    "Lease/LeaseRevoke", LeaseRevokeRequest(ID=self.id), LeaseRevokeResponse
                )

    async def _beat(self) -> None:
        """Keeps one lease alive over one stream, until it is lost or the stream ends."""
        lease_id = self.id
        answered = asyncio.Event()

        async def requests() -> AsyncIterator[LeaseKeepAliveRequest]:
            while True:
                answered.clear()
                yield LeaseKeepAliveRequest(ID=lease_id)
                # The next request follows a third of the lease's time after the last answer, not after the
                # last request.
                await answered.wait()
                await pause(self._ttl_s / 3)

        stream = self._client.stream(
            "Lease/LeaseKeepAlive", requests(), LeaseKeepAliveRequest, LeaseKeepAliveResponse
        )
        async with contextlib.aclosing(stream):
            while True:
                try:
                    async with asyncio.timeout(self._ttl_s * 2 / 3):
                        answer = await anext(stream)
                except TimeoutError as error:
                    raise CallLostError("the member that keeps the lease says nothing") from error
                except StopAsyncIteration as error:
                    raise CallLostError("the stream that keeps the lease has ended") from error
                answered.set()
                if answer.TTL <= 0:
                    await self._renew()
                    return
                if self._lost_contact:
                    self._lost_contact = False
                    self._on_session(SessionEvent.RECONNECTED)

    async def _renew(self) -> None:
        self._on_session(SessionEvent.SESSION_LOST)
        await self.begin()
        self._lost_contact = False
        self._on_session(SessionEvent.SESSION_RENEWED)

"""Streams of etcd that end while their task does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from magnetar.metadata.etcd.etcd_client import EtcdClient
from magnetar.metadata.etcd.lease import Lease

grpc = pytest.importorskip("grpc")


class SwallowingChannel:
    """Answers a cancelled task with how its call ended, as gRPC does in rare moments."""

    def __init__(self, error: Exception | None) -> None:
        self.asked = asyncio.Event()
        self._error = error

    def stream_stream(self, *_: Any, **__: Any) -> Any:
        return self._answers

    async def _answers(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        once = not self.asked.is_set()
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not once:
                raise
            if self._error is not None:
                raise self._error from None
        for never in ():
            yield never


@pytest.mark.parametrize("status", ["CANCELLED", "UNAVAILABLE", ""])
def test_a_cancelled_session_ends_whatever_its_stream_says(status: str) -> None:
    async def story() -> None:
        # No channel of gRPC, whose threads keep descriptors for as long as they like.
        client = EtcdClient([], call_timeout_s=1.0)
        error = None
        if status:
            none = grpc.aio.Metadata()
            error = grpc.aio.AioRpcError(getattr(grpc.StatusCode, status), none, none)
        channel = SwallowingChannel(error)
        client._channels = [channel]
        keeping = asyncio.create_task(Lease(client, 10, lambda _: None).keep())
        await channel.asked.wait()
        keeping.cancel()
        done, _ = await asyncio.wait([keeping], timeout=10)
        assert done
        assert keeping.cancelled()

    asyncio.run(story())

"""Calls to etcd's members, one after the other until one answers.

`grpcio` is imported when a store on etcd is opened, and only then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from magnetar.base.errors import MetadataError, StartupError
from magnetar.metadata.etcd.etcd_pb2 import ResponseHeader
from magnetar.metadata.store import StoreUnreachableError
from magnetar.runtime.tasks import pause

if TYPE_CHECKING:
    from grpc import aio

RETRY_S: Final = 0.1
"""Seconds of pause before the next member is tried."""

ATTEMPT_S: Final = 3.0
"""Seconds that one member may take for one call."""

_AGAIN: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL"})
"""Statuses after which a call is tried again, with another member or later."""


class _Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802 - protobuf's name


class _Answer(Protocol):
    @property
    def header(self) -> ResponseHeader: ...


_Response = TypeVar("_Response", bound=_Answer)


class CallLostError(MetadataError):
    """A member did not answer: the call may or may not have taken effect."""


class LeaseGoneError(MetadataError):
    """The call named a lease that is gone; it had no effect."""


class EtcdClient:
    """Sends calls and streams to etcd's members. Made on the event loop."""

    def __init__(self, addresses: Sequence[tuple[str, int]], call_timeout_s: float) -> None:
        """`call_timeout_s`: seconds that `call` keeps trying. Raises StartupError when grpcio is missing."""
        try:
            from grpc import aio
        except ImportError as error:
            raise StartupError("metadata on etcd needs grpcio: pip install '.[etcd]' in a clone") from error
        # A member that is back must be tried soon, not after gRPC's two minutes.
        options = [("grpc.max_reconnect_backoff_ms", 1000), ("grpc.initial_reconnect_backoff_ms", 100)]
        self._channels: list[aio.Channel] = [
            aio.insecure_channel(f"{host}:{port}", options=options) for host, port in addresses
        ]
        self._rpc_error: type[Exception] = aio.AioRpcError
        self.named: Callable[[int], None] = lambda revision: None
        """Gets the revision of the store that each answer names."""
        self._names = ", ".join(f"{host}:{port}" for host, port in addresses)
        self._at = 0
        self._call_timeout_s = call_timeout_s

    async def once(self, method: str, request: _Message, response: type[_Response]) -> _Response:
        """Sends the call once. Raises CallLostError when the outcome is not known, MetadataError for a
        refusal."""
        channel = self._channels[self._at % len(self._channels)]
        rpc = channel.unary_unary(
            f"/etcdserverpb.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,  # type: ignore[attr-defined]  # every message has it
        )
        try:
            answer: _Response = await rpc(request, timeout=ATTEMPT_S)
        except self._rpc_error as error:
            self._raise(error)
        self.named(answer.header.revision)
        return answer

    async def call(self, method: str, request: _Message, response: type[_Response]) -> _Response:
        """Repeats the call until a member answers; only for calls that may take effect twice. Raises
        StoreUnreachableError after `call_timeout_s`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._call_timeout_s
        while True:
            try:
                return await self.once(method, request, response)
            except CallLostError as error:
                if loop.time() > deadline:
                    raise StoreUnreachableError(
                        f"etcd at {self._names} cannot be reached since {self._call_timeout_s:g} s"
                    ) from error
            await pause(RETRY_S)

    async def stream(
        self,
        method: str,
        requests: AsyncIterator[_Message],
        request: type[_Message],
        response: type[_Response],
    ) -> AsyncGenerator[_Response, None]:
        """The answers of a stream until it ends. Raises CallLostError, MetadataError."""
        channel = self._channels[self._at % len(self._channels)]
        rpc = channel.stream_stream(
            f"/etcdserverpb.{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,  # type: ignore[attr-defined]  # every message has it
        )
        try:
            async for answer in rpc(requests):
                self.named(answer.header.revision)
                yield answer
        except self._rpc_error as error:
            self._raise(error)
        _check_wanted()

    async def close(self) -> None:
        """Ends all connections."""
        for channel in self._channels:
            await channel.close(None)

    def _raise(self, error: aio.AioRpcError) -> None:
        _check_wanted()
        code = error.code().name
        if code in _AGAIN:
            self._at += 1
            raise CallLostError(f"etcd does not answer: {code} {error.details()}") from error
        if code == "NOT_FOUND":
            raise LeaseGoneError(f"etcd refuses: {error.details()}") from error
        raise MetadataError(f"etcd refuses: {code} {error.details()}") from error


def _check_wanted() -> None:
    """Raises CancelledError in a task that was cancelled.

    gRPC may return the end of the cancelled call to such a task; a task that then retried would never end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError

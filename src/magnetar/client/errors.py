"""Errors of a client of the binary protocol.

ClientError
├── UnreachableError      no answer at an address, or the connection broke
├── RequestTimeoutError   the broker did not answer in time
├── RefusedError          the broker answered with an error code
├── PayloadError          an entry cannot be decoded: damaged, encrypted, unknown compression
└── DataLossError         entries that must exist are gone
"""

from __future__ import annotations

from magnetar.base.errors import ClientError
from magnetar.wire import pulsar_pb2 as pb


class UnreachableError(ClientError):
    """There is no connection, or it broke. The call may be repeated."""

    retriable = True

    def __init__(self, url: str, detail: str) -> None:
        super().__init__(f"cannot reach {url}: {detail}")
        self.url = url
        self.detail = detail


class RequestTimeoutError(ClientError):
    """No answer came within the limit. The request may have taken effect."""

    retriable = True

    def __init__(self, url: str, what: str, timeout_s: float) -> None:
        super().__init__(f"{url} did not answer {what} within {timeout_s:g} s")
        self.url = url
        self.what = what


_RETRIABLE = frozenset(
    (
        pb.ServerError.MetadataError,
        pb.ServerError.PersistenceError,
        pb.ServerError.ServiceNotReady,
        pb.ServerError.TooManyRequests,
        pb.ServerError.ProducerBusy,
        pb.ServerError.ConsumerBusy,
        pb.ServerError.UnknownError,
    )
)


class RefusedError(ClientError):
    """The broker refused a request. `code`: a number of the protocol's ServerError."""

    def __init__(self, what: str, code: int, detail: str) -> None:
        name = pb.ServerError.Name(code) if code in pb.ServerError.values() else str(code)
        super().__init__(f"{what} was refused with {name}: {detail}")
        self.code = code
        self.detail = detail
        self.retriable = code in _RETRIABLE


class PayloadError(ClientError):
    """An entry cannot be decoded into messages."""


class DataLossError(ClientError):
    """Entries of a range are no longer in the topic."""

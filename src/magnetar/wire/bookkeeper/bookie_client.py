"""The ledger client's side of a connection: requests to bytes, a bookie's bytes to responses.

A client chooses the version of a connection with its first request and keeps it: a bookie that has seen
version 2 accepts nothing else. Only the response to START_TLS has version 3 on a connection of version 2.

Source: BookKeeper protocol, framing.
"""

from __future__ import annotations

from typing import Final

from magnetar.wire.bookkeeper import v2, v3_requests, v3_responses
from magnetar.wire.bookkeeper.packets import PACKET_BYTES_MAX, PacketCutter
from magnetar.wire.bookkeeper.requests import AddRun, Auth, BatchRead, Read, Request
from magnetar.wire.bookkeeper.responses import Added, Response
from magnetar.wire.frames import FrameError

_V3_START: Final = b"\x0a"
"""First byte of a response of version 3: the tag of its header. A response of version 2 begins with byte 2.
"""


class BookieClientParser:
    """Parses the responses of one bookie. After a FrameError it must not be used again."""

    __slots__ = ("_cutter", "is_v2")

    is_v2: bool
    """Whether the next packets have version 2; the client changes it once TLS has begun."""

    def __init__(self, *, is_v2: bool, packet_bytes_max: int = PACKET_BYTES_MAX) -> None:
        """`packet_bytes_max`: largest packet accepted, in bytes, without its length field."""
        self.is_v2 = is_v2
        self._cutter = PacketCutter(packet_bytes_max)

    @property
    def needed(self) -> int:
        """After `parse`: bytes of the incomplete packet at the end, length field included; 0 while not
        known."""
        return self._cutter.needed

    def parse(self, buffer: bytearray | memoryview | bytes, size: int) -> tuple[list[Response], int]:
        """Parses the complete packets in `buffer[:size]`: their responses, and the bytes consumed.

        Consecutive responses to adds with one outcome form one object. The result does not refer to `buffer`.
        Raises FrameError, which holds the responses before the bad packet.
        """
        responses: list[Response] = []
        at = 0
        try:
            with memoryview(buffer) as view:
                while True:
                    if self.is_v2:
                        at = v2.take_added(responses, view, at, size)
                    end = self._cutter.end_of(view, at, size)
                    if not end:
                        return responses, at
                    self._take(responses, bytes(view[at + 4 : end]))
                    at = end
        except FrameError as error:
            error.events = list(responses)
            raise

    def _take(self, responses: list[Response], body: bytes) -> None:
        # Apache's bookies answer START_TLS in version 3, whatever version the connection has, also after TLS
        # has begun. A bookie that also demands a password then answers UNAUTHORIZED in version 3.
        is_v2 = self.is_v2 and not body.startswith(_V3_START)
        response = v2.parse_response(body) if is_v2 else v3_responses.parse_response(body)
        if isinstance(response, Added) and responses:
            last = responses[-1]
            if (
                isinstance(last, Added)
                and last.ledger_id == response.ledger_id
                and last.status is response.status
            ):
                last.entry_ids += response.entry_ids
                if last.txn_ids is not None and response.txn_ids is not None:
                    last.txn_ids += response.txn_ids
                return
        responses.append(response)


def encode_request(request: Request, *, is_v2: bool) -> list[bytes]:
    """Encodes a request; returns the packets in pieces. Raises ValueError when the version has no such
    request."""
    if not is_v2:
        return v3_requests.encode_request(request)
    if isinstance(request, AddRun | Read | BatchRead | Auth):
        return v2.encode_request(request)
    raise ValueError(f"version 2 has no {type(request).__name__}")

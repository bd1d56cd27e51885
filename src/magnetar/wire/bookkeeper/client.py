"""What a ledger client reads and writes: requests to bytes, and a bookie's bytes to answers.

A client chooses the version of a connection with its first request and never mixes: a bookie that has seen
version 2 takes nothing else. Only the answer to START_TLS comes in version 3 on a connection of version 2.

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
"""First byte of an answer of version 3: the field of its header. One of version 2 begins with a 2."""


class BookieClientParser:
    """Reads what one bookie answers. After a FrameError it must not be used again."""

    __slots__ = ("_cutter", "is_v2")

    is_v2: bool
    """Which version the next packets are in; changed by the client when TLS has begun."""

    def __init__(self, *, is_v2: bool, packet_bytes_max: int = PACKET_BYTES_MAX) -> None:
        """`packet_bytes_max`: largest packet, without its length, that is accepted."""
        self.is_v2 = is_v2
        self._cutter = PacketCutter(packet_bytes_max)

    @property
    def needed(self) -> int:
        """After `parse`: bytes of the incomplete packet at the end, length included; 0 while not known."""
        return self._cutter.needed

    def parse(self, buffer: bytearray | memoryview | bytes, size: int) -> tuple[list[Response], int]:
        """Answers in the complete packets in `buffer[:size]`, and the bytes they took.

        Answers to adds that follow each other and have one outcome come as one. Nothing of the result refers
        to `buffer`. Raises FrameError, with the answers before the bad packet in it.
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
        # Apache's bookies speak of TLS in version 3 whatever is spoken else, also after it has begun: one
        # that asks for a password besides says then that nobody is authenticated yet.
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
    """The packets of a request, in pieces. Raises ValueError when that version has no such request."""
    if not is_v2:
        return v3_requests.encode_request(request)
    if isinstance(request, AddRun | Read | BatchRead | Auth):
        return v2.encode_request(request)
    raise ValueError(f"version 2 has no {type(request).__name__}")

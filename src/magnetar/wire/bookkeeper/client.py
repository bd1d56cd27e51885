"""What a ledger client reads and writes: requests to bytes, and a bookie's bytes to answers.

A client chooses the version of a connection with its first request and never mixes: a bookie that has seen
version 2 takes nothing else. Only the answer to START_TLS comes in version 3 on a connection of version 2.

Source: BookKeeper protocol, framing.
"""

from __future__ import annotations

from magnetar.wire.bookkeeper import v2, v3_requests, v3_responses
from magnetar.wire.bookkeeper.packets import PACKET_BYTES_MAX, PacketCutter
from magnetar.wire.bookkeeper.requests import AddRun, Auth, BatchRead, Read, Request
from magnetar.wire.bookkeeper.responses import Added, Response
from magnetar.wire.frames import FrameError


class ClientParser:
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
        try:
            for packet in self._cutter.cut(buffer, size):
                self._take(responses, packet[4:])
        except FrameError as error:
            error.events = list(responses)
            raise
        return responses, self._cutter.consumed

    def _take(self, responses: list[Response], body: bytes) -> None:
        response = v2.parse_response(body) if self.is_v2 else v3_responses.parse_response(body)
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

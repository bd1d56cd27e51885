"""Commands that name very many message ids, decoded in parts.

To decode an id takes up to 2 µs, and a command of 1.5 MiB names 260,000. So the bytes are first looked
through for what else the command says, as the protocol lets that stand behind the ids; then each part is
decoded as a command of its own, with a thousand of the ids and all the rest.

Source: protobuf encoding: fields of a message come in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from google.protobuf.message import DecodeError

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import LongList
from magnetar.wire.fields import FIELDS_MAX
from magnetar.wire.frames import FrameError, read_varint

LONG_LIST_BYTES: Final = 16 << 10
"""A list from this size on is not decoded where it is read. A shorter one has at most 2,700 ids, which take
5 ms."""
IDS_MAX: Final = 1_024
"""Ids of one part."""
_PART_BYTES_MAX: Final = 32 << 10
"""Bytes of the ids of one part, unless it is one id: sets of batch indexes are long."""
_LOOKED_AT_MAX: Final = 8_192
"""Ids looked through in one go: a millisecond and a half."""
_OTHERS_BYTES_MAX: Final = 16 << 10
"""Bytes of all other fields: a consumer, a transaction, a request."""
_ID_TAGS: Final[dict[int, int]] = {
    pb.BaseCommand.ACK: 0x1A,
    pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: 0x12,
}
_WIDTHS: Final = {1: 8, 5: 4}
"""Bytes of a value of fixed width, by wire type."""

Body = pb.CommandAck | pb.CommandRedeliverUnacknowledgedMessages


def long_list(data: bytes, at: int, stop: int) -> LongList | None:
    """The BaseCommand in `data[at:stop]`, of `LONG_LIST_BYTES` at least, if it is a list of message ids.

    Raises FrameError when it is one and says something besides.
    """
    kind = data[at + 1]
    if data[at] != 0x08 or kind not in _ID_TAGS:
        return None
    tag, body = read_varint(data, at + 2, stop)
    size, body = read_varint(data, body, stop)
    if tag != kind << 3 | 2 or body + size != stop:
        raise FrameError(f"command {kind} of {stop - at} bytes that is more than its own field")
    return LongList(kind, data[body:stop])


def parts(event: LongList) -> Iterator[Body | None]:
    """The command in parts that name some of its ids each, in their order, and say all the rest; None in
    between: nothing is decoded yet, and others may have a turn. At least one part.

    Raises FrameError, before the first part where the cause is the shape of the command.
    """
    cuts = _Cuts(event.body, _ID_TAGS[event.type])
    while cuts.look():
        yield None
    others = bytes(cuts.others)
    kind = pb.CommandAck if event.type == pb.BaseCommand.ACK else pb.CommandRedeliverUnacknowledgedMessages
    for ids in cuts.parts():
        try:
            part = kind.FromString(others + ids)
        except DecodeError as error:
            raise FrameError(f"command {event.type} of {len(event.body)} bytes cannot be decoded") from error
        if not part.IsInitialized():
            raise FrameError(f"{pb.BaseCommand.Type.Name(event.type)} without required fields")
        yield part


class _Cuts:
    """Where the parts of one command begin and end."""

    def __init__(self, body: bytes, tag: int) -> None:
        self.others = bytearray()
        """The fields that are not ids."""
        self._body = body
        self._tag = tag
        self._at = 0
        self._fields = 0
        self._runs: list[tuple[int, int, int]] = []
        """Ids that stand one behind the other: begin, end, how many; each is one part or less."""

    def look(self) -> bool:
        """Looks through some of the ids; whether there is more. Raises FrameError."""
        body, tag, size = self._body, self._tag, len(self._body)
        looked = 0
        while self._at < size and looked < _LOOKED_AT_MAX:
            begin = at = self._at
            count = 0
            while at < size - 1 and body[at] == tag and count < IDS_MAX and at - begin < _PART_BYTES_MAX:
                length, at = (
                    read_varint(body, at + 1, size) if body[at + 1] > 0x7F else (body[at + 1], at + 2)
                )
                at += length
                count += 1
                if at > size:
                    raise FrameError(f"list of ids of {size} bytes cannot be decoded")
            if count:
                self._runs.append((begin, at, count))
                looked += count
                self._at = at
            else:
                self._other()
        return self._at < size

    def _other(self) -> None:
        body, size, begin = self._body, len(self._body), self._at
        tag, at = read_varint(body, begin, size)
        wire_type = tag & 7
        if wire_type == 2:
            length, at = read_varint(body, at, size)
            at += length
        elif wire_type == 0:
            while at < size and body[at] > 0x7F:
                at += 1
            at += 1
        else:
            at += _WIDTHS.get(wire_type, size)
        self._fields += 1
        if at > size or self._fields > FIELDS_MAX or len(self.others) + at - begin > _OTHERS_BYTES_MAX:
            raise FrameError(f"list of ids of {size} bytes cannot be decoded, or holds much besides")
        self.others += body[begin:at]
        self._at = at

    def parts(self) -> Iterator[bytes]:
        """The encoded ids of each part; one empty part when there are none."""
        body = self._body
        joined = bytearray()
        count = 0
        for begin, end, ids in self._runs:
            if joined and (count + ids > IDS_MAX or len(joined) + end - begin > _PART_BYTES_MAX):
                yield bytes(joined)
                joined, count = bytearray(), 0
            joined += body[begin:end]
            count += ids
        if joined or not self._runs:
            yield bytes(joined)

"""Frames that a broker sends before bytes are passed on unread, and its answers to look-ups (pure)."""

from __future__ import annotations

import struct

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import FrameError, command_end, parse_command

_U32 = struct.Struct(">I")


def next_frame(data: bytearray, at: int, bytes_max: int) -> tuple[int, pb.BaseCommand, int] | None:
    """The frame that begins at `data[at]`: its type, its command, and where it ends; None: it is not whole.

    Raises FrameError, also for a frame of more than `bytes_max` bytes.
    """
    size = len(data)
    if size - at < 4:
        return None
    total: int = _U32.unpack_from(data, at)[0]
    end = at + 4 + total
    if total + 4 > bytes_max:
        raise FrameError(f"frame of {total} bytes, {bytes_max} are allowed")
    if end > size:
        return None
    with memoryview(data) as view:
        stop = command_end(view, at, end)
        kind, command = parse_command(bytes(view[at + 8 : stop]))
    return kind, command, end

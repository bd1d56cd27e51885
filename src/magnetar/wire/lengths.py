"""How long a command can be: what is longer is refused by its first bytes, before it is decoded (pure).

What a message holds is no part of its command. A command is some names and numbers; three kinds carry a
schema, two name positions. Whoever sends more than that costs its sender as much as it costs us.

Source: bounds of the texts in commands, `broker/handlers/texts.py`, at four bytes a character.
"""

from __future__ import annotations

from typing import Final

from magnetar.wire.frames import FrameError, read_varint

COMMAND_BYTES_MAX: Final = 128 << 10
"""Of any command that is not named below: a pattern of 64 KiB, and names."""
_WITH_PROPERTIES_BYTES_MAX: Final = 384 << 10
"""256 KiB of properties more."""
_WITH_SCHEMA_BYTES_MAX: Final = (1 << 20) + (512 << 10)
"""A schema of 1 MiB, its properties, and those of the producer or of consumer and subscription."""
_WITH_IDS_BYTES_MAX: Final = (1 << 20) + (512 << 10)
"""A hundred thousand ids of messages; clients send a thousand, or what one consumer may hold, 50,000."""
_SUBSCRIBE: Final = 4
_PRODUCER: Final = 5
_ACK: Final = 10
_REDELIVER: Final = 20
_LOOKUP: Final = 23
_GET_TOPICS: Final = 32
_GET_OR_CREATE_SCHEMA: Final = 39

_BYTES_MAX: Final = {
    _SUBSCRIBE: _WITH_SCHEMA_BYTES_MAX,
    _PRODUCER: _WITH_SCHEMA_BYTES_MAX,
    _GET_OR_CREATE_SCHEMA: _WITH_SCHEMA_BYTES_MAX,
    _LOOKUP: _WITH_PROPERTIES_BYTES_MAX,
    _GET_TOPICS: _WITH_PROPERTIES_BYTES_MAX,
    _ACK: _WITH_IDS_BYTES_MAX,
    _REDELIVER: _WITH_IDS_BYTES_MAX,
}

ENVELOPE_BYTES: Final = 40
"""Bytes of a frame, from its command's size on, that `check_command` looks at."""


def check_command(head: bytes) -> None:
    """Raises FrameError when a command cannot be so long.

    `head`: the size of the command, u32, and the bytes of it that are there. Too few for an answer are none.

    A large command must look as clients write it: its type, then the one field that belongs to it, which
    fills it. Otherwise a kind without limit could be named first, and another one meant.
    """
    command_bytes = int.from_bytes(head[:4], "big")
    if command_bytes <= COMMAND_BYTES_MAX or len(head) < ENVELOPE_BYTES:
        return
    kind, at = read_varint(head, 5, ENVELOPE_BYTES)
    if head[4] != 0x08 or at > ENVELOPE_BYTES:
        raise FrameError(f"command of {command_bytes} bytes that does not begin with its type")
    most = _BYTES_MAX.get(kind, COMMAND_BYTES_MAX)
    if command_bytes > most:
        raise FrameError(f"command {kind} of {command_bytes} bytes; {most} are allowed")
    tag, at = read_varint(head, at, ENVELOPE_BYTES)
    size, at = read_varint(head, at, ENVELOPE_BYTES)
    if tag != kind << 3 | 2 or at + size != command_bytes + 4:
        raise FrameError(f"command {kind} of {command_bytes} bytes that is more than its own field")

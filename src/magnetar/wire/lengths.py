"""Bounds on the length of commands: a longer one is refused by its first bytes, before it is decoded (pure).

A message's content is not part of its command. A command holds a few names and numbers; three kinds carry a
schema, two carry positions. With these bounds a command costs the broker no more than it costs its sender.

Source: bounds of the texts in commands, `broker/handlers/texts.py`, at four bytes per character.
"""

from __future__ import annotations

from typing import Final

from magnetar.wire.frames import FrameError, read_varint

COMMAND_BYTES_MAX: Final = 128 << 10
"""Bytes of a command that is not listed below: a pattern of 64 KiB, and names."""
_WITH_PROPERTIES_BYTES_MAX: Final = 384 << 10
"""Bytes of a command with properties: 256 KiB more."""
_WITH_SCHEMA_BYTES_MAX: Final = (1 << 20) + (512 << 10)
"""Bytes of a command with a schema: 1 MiB for the schema, its properties, and those of the producer, or of
consumer and subscription."""
_WITH_IDS_BYTES_MAX: Final = (1 << 20) + (512 << 10)
"""Bytes of a command with message ids: a hundred thousand ids. Clients send a thousand, or the 50,000 that
one consumer may hold."""
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
"""Bytes that `check_command` reads, from the size of the command on."""


def check_command(head: bytes) -> None:
    """Raises FrameError when a command is longer than its kind allows.

    `head`: the size of the command, u32, and its first bytes, as far as they have arrived. With too few bytes
    nothing is raised.

    A large command must have the layout that clients use: its type, then the one field of that type, which
    fills it. Otherwise a command could name a kind without a bound first, and hold another one.
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

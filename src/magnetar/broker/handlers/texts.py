"""Bounds on the texts of commands: a longer one is refused before any part is stored or logged.

For commands, not messages: names, properties, schemas. A command that is small as a whole is not checked.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from magnetar.base.names import TOPIC_CHARS_MAX
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from magnetar.broker.ports import SessionPort
    from magnetar.wire.events import CommandEvent

_log = logging.getLogger("magnetar.broker.session")

NAME_CHARS_MAX: Final = 1_024
"""Characters of a subscription's, producer's, consumer's or schema's name, and of any other single text."""
PROPERTIES_MAX: Final = 256
"""Properties of a producer, a consumer, a subscription or a schema."""
PROPERTIES_CHARS_MAX: Final = 16 << 10
"""Characters of their keys and values together; those of a schema may have four times as many."""
SCHEMA_BYTES_MAX: Final = 1 << 20
_SMALL_BYTES: Final = 1_024
"""A command of fewer bytes cannot have a text that is too long."""

_CHARS_MAX: Final = {"topic": TOPIC_CHARS_MAX, "topics_pattern": 16 << 10}
_BYTES_MAX: Final = {"schema_data": SCHEMA_BYTES_MAX}
_Type = pb.BaseCommand.Type
_Fault = tuple[pb.ServerError, str]


def refused(session: SessionPort, event: CommandEvent) -> bool:
    """Whether something in the command is too long; then it was answered."""
    command = event.command
    if command.ByteSize() <= _SMALL_BYTES:
        return False
    body = next((body for field, body in command.ListFields() if field.name != "type"), None)
    fault = None if body is None else _fault_of(body)
    if fault is None:
        return False
    code, text = fault
    _log.info("%s: %s refused: %s", session.peer, _Type.Name(command.type), text)
    request_id = getattr(body, "request_id", None)
    if request_id is None:
        session.close(text)
    elif event.type == _Type.LOOKUP:
        session.reply(commands.lookup_error(request_id, code, text))
    elif event.type == _Type.PARTITIONED_METADATA:
        session.reply(commands.partitions_error(request_id, code, text))
    elif event.type == _Type.GET_SCHEMA:
        session.reply(commands.schema_error(request_id, code, text))
    elif event.type == _Type.GET_OR_CREATE_SCHEMA:
        session.reply(commands.schema_refused(request_id, code, text))
    else:
        session.reply(commands.error(request_id, code, text))
    return True


def _fault_of(message: Message) -> _Fault | None:
    """The text of a command's body that is too long; None when there is none."""
    for field, value in message.ListFields():
        name = field.name
        if field.message_type is not None:
            if field.message_type.name == "KeyValue":
                # One more than the bound suffices: a command may hold thousands.
                text = properties_fault(
                    name, [(pair.key, pair.value) for pair in value[: PROPERTIES_MAX + 1]]
                )
                fault = None if text is None else (pb.MetadataError, text)
            elif field.is_repeated:
                # Numbers only: ids of messages, ranges of hashes.
                fault = None
            else:
                fault = _fault_of(value)
        elif isinstance(value, str):
            fault = _length_fault(name, len(value), _CHARS_MAX.get(name, NAME_CHARS_MAX), "characters")
        elif isinstance(value, bytes) and name in _BYTES_MAX:
            fault = _length_fault(name, len(value), _BYTES_MAX[name], "bytes")
        else:
            fault = None
        if fault is not None:
            return fault
    return None


def _length_fault(name: str, length: int, most: int, unit: str) -> _Fault | None:
    if length <= most:
        return None
    code = pb.InvalidTopicName if name == "topic" else pb.MetadataError
    return code, f"{name} has {length} {unit}; {most} are allowed"


def properties_fault(name: str, pairs: Collection[tuple[str, str]]) -> str | None:
    """Why a client's properties are too large; None when they are not."""
    most = PROPERTIES_CHARS_MAX * (4 if name == "properties" else 1)
    if len(pairs) > PROPERTIES_MAX:
        return f"{name} has more than {PROPERTIES_MAX} properties"
    length = sum(len(key) + len(value) for key, value in pairs)
    if length > most:
        return f"{name} has {length} characters; {most} are allowed"
    return None

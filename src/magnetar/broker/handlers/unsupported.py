"""Commands that this broker does not offer: what waits for an answer is refused, never met with silence."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from magnetar.base.ids import RequestId
from magnetar.broker.errors import WIRE_CODES, UnsupportedError
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import CommandEvent

if TYPE_CHECKING:
    from magnetar.broker.ports import SessionPort

_log = logging.getLogger("magnetar.broker.session")

Type = pb.BaseCommand.Type
_CODE: Final = WIRE_CODES[UnsupportedError]


_OF_TRANSACTIONS: Final = frozenset(
    number for name, number in Type.items() if "TXN" in name or name.startswith("TC_CLIENT")
)


def refuse(session: SessionPort, event: CommandEvent) -> None:
    """Answers with an error that names the command; a second CONNECT ends the connection."""
    if event.type == Type.CONNECT:
        session.close("CONNECT came twice")
        return
    if event.type == Type.SEND:
        send = event.command.send
        refusal = "markers and replicated messages are not offered yet"
        session.reply(commands.send_error(send.producer_id, send.sequence_id, _CODE, refusal))
        return
    name = Type.Name(event.type) if event.type in Type.values() else f"command {event.type}"
    request_id = _request_id(event.command)
    if request_id is None:
        _log.info("%s: %s is not supported and needs no answer", session.peer, name)
        return
    refusal = f"{name} is not offered by this broker yet"
    if event.type in _OF_TRANSACTIONS:
        refusal = f"Transactions are not enabled; {refusal}"
    session.reply(commands.error(request_id, _CODE, refusal))


def _request_id(command: pb.BaseCommand) -> RequestId | None:
    """The request id of any command; None for commands that have none."""
    for field, body in command.ListFields():
        if field.message_type is not None and "request_id" in field.message_type.fields_by_name:
            return RequestId(body.request_id)
    return None

"""The command of each type: the tables of all subjects, and PING and PONG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.broker.handlers import consumers, producers, renewals, schemas, topics
from magnetar.broker.transactions import commands as transactions
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from magnetar.broker.ports import Handler, SessionPort

Command = pb.BaseCommand
Type = pb.BaseCommand.Type


def _ping(session: SessionPort, _: Command) -> None:
    session.reply(commands.PONG)


def _pong(session: SessionPort, _: Command) -> None:
    session.answered()


HANDLERS: Final[dict[int, Handler]] = {
    Type.PING: _ping,
    Type.PONG: _pong,
    **topics.HANDLERS,
    **producers.HANDLERS,
    **consumers.HANDLERS,
    **schemas.HANDLERS,
    **renewals.HANDLERS,
    **transactions.HANDLERS,
}

"""CONNECT: who is it, and what both sides can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import magnetar
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials
from magnetar.broker.errors import wire_code
from magnetar.wire import commands, features
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import NO_ID

if TYPE_CHECKING:
    from magnetar.broker.guard import Guard
    from magnetar.broker.session import Session


def connect(session: Session, request: pb.CommandConnect) -> None:
    """Answers CONNECT, after authentication where there is one."""
    guard = session.broker.guard
    if guard is None:
        _welcome(session, request)
    else:
        session.broker.tasks.spawn(_authenticate(session, guard, request))


async def _authenticate(session: Session, guard: Guard, request: pb.CommandConnect) -> None:
    credentials = Credentials(request.auth_method_name, request.auth_data, session.certificate_role)
    try:
        identity = await guard.identify(credentials, session.peer)
        if request.original_principal not in ("", identity.role):
            raise AuthenticationError(f"role {identity.role!r} may not speak for others")
    except AuthenticationError as error:
        session.reply(commands.error(NO_ID, wire_code(error), str(error)))
        session.end(str(error))
        return
    session.identity = identity
    if not session.closed:
        _welcome(session, request)


def _welcome(session: Session, request: pb.CommandConnect) -> None:
    session.connected = True
    session.client_version = request.client_version
    session.broker_metadata = features.wants_broker_metadata(request)
    session.takes_end_of_topic = features.takes_end_of_topic(request)
    session.reply(
        commands.connected(
            f"Magnetar {magnetar.__version__}",
            features.negotiated_version(request.protocol_version),
            session.broker.config.message_bytes_max,
            features.broker_features(),
        )
    )

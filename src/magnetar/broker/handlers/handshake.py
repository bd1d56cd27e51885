"""CONNECT: authentication, and the features of both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import magnetar
from magnetar.auth.errors import AuthenticationError, AuthorizationError
from magnetar.auth.identity import Credentials
from magnetar.base.errors import MagnetarError
from magnetar.broker.errors import TooManyConnectionsError, wire_code
from magnetar.broker.guard import Introduction
from magnetar.broker.handlers import renewals
from magnetar.broker.session.greetings import CONNECT_BYTES_MAX
from magnetar.wire import commands, features
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import NO_REQUEST

if TYPE_CHECKING:
    from magnetar.broker.guard import Guard
    from magnetar.broker.ports import SessionPort


def connect(session: SessionPort, request: pb.CommandConnect) -> None:
    """Answers CONNECT, after authentication where there is one."""
    session.broker.greetings.ended(session)
    if request.ByteSize() > CONNECT_BYTES_MAX:
        session.close(f"a CONNECT of more than {CONNECT_BYTES_MAX} bytes")
        return
    siblings = session.broker.siblings
    if siblings is not None and (place := siblings.find(request.proxy_to_broker_url)) is not None:
        session.hand_over(place)
        return
    guard = session.broker.guard
    if guard is None:
        _welcome(session, request)
    else:
        session.broker.tasks.spawn(_authenticate(session, guard, request))


async def _authenticate(session: SessionPort, guard: Guard, request: pb.CommandConnect) -> None:
    introduction = Introduction(
        Credentials(request.auth_method_name, request.auth_data, session.certificate_role),
        request.original_principal,
        Credentials(request.original_auth_method, request.original_auth_data.encode()),
    )
    try:
        admitted = await guard.admit(introduction, session.peer)
    except (AuthenticationError, AuthorizationError) as error:
        _refuse(session, error)
        return
    session.identity = admitted.identity
    if not session.closed:
        session.renewal = renewals.begin(admitted, request)
        _welcome(session, request)


def arrive(session: SessionPort) -> None:
    """A socket was opened: counts it, and closes it with a reason when it is one too many.

    The oldest client without a CONNECT gives its place to the newest.
    """
    broker = session.broker
    if broker.connections.full and (oldest := broker.greetings.drop_oldest()) is not None:
        broker.connections.leave(oldest)
    try:
        broker.connections.arrive(session, session.peer.rpartition(":")[0])
    except TooManyConnectionsError as error:
        _refuse(session, error)
    else:
        broker.greetings.came(session)


def _refuse(session: SessionPort, error: MagnetarError) -> None:
    session.reply(commands.error(NO_REQUEST, wire_code(error), str(error)))
    session.close(str(error))


def _welcome(session: SessionPort, request: pb.CommandConnect) -> None:
    role = "" if session.identity is None else session.identity.role
    try:
        session.broker.connections.enter(session, session.peer.rpartition(":")[0], role)
    except TooManyConnectionsError as error:
        _refuse(session, error)
        return
    session.welcomed()
    session.client_version = request.client_version
    exposes = session.broker.config.exposes_broker_metadata
    session.broker_metadata = features.wants_broker_metadata(request, exposes_metadata=exposes)
    session.takes_end_of_topic = features.takes_end_of_topic(request)
    session.reply(
        commands.connected(
            f"Magnetar {magnetar.__version__}",
            features.negotiated_version(request.protocol_version),
            session.broker.config.message_bytes_max,
            features.broker_features(exposes_metadata=exposes),
        )
    )

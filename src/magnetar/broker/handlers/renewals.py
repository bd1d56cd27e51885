"""AUTH_CHALLENGE and AUTH_RESPONSE: expired credentials of an open connection are renewed, or it is closed.

`auth/renewal.py` has the rules. Only connections whose credentials can expire have a `Renewal`. A connection
whose credentials were revoked (by user, key, token id or authority) is closed without a challenge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import magnetar
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.renewal import Renewal, RenewalVerdict
from magnetar.broker import guard as guards
from magnetar.broker.errors import wire_code
from magnetar.wire import commands, features
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import NO_REQUEST

if TYPE_CHECKING:
    from magnetar.auth.identity import Credentials
    from magnetar.broker.guard import Admitted, Guard
    from magnetar.broker.ports import BrokerPort, Handler, SessionPort

Command = pb.BaseCommand

_CHALLENGE: Final = b"PulsarAuthRefresh"
"""The challenge that asks clients for a new credential. Source: Pulsar's AuthData."""

_TAKEN_BACK: Final = "the client's credentials count no more"


def begin(admitted: Admitted, request: pb.CommandConnect) -> Renewal | None:
    """The renewal of a connection's credentials; None for those that never end."""
    if admitted.identity.expires_ms is None and admitted.others_end_ms is None:
        return None
    return Renewal(
        admitted.identity,
        admitted.renewable,
        client_renews=features.renews_credentials(request),
        others_end_ms=admitted.others_end_ms,
    )


async def check_all(broker: BrokerPort) -> None:
    """Challenges clients whose credentials have ended; disconnects those that did not answer, or whose
    credentials were revoked."""
    assert broker.guard is not None
    now_ms = broker.guard.now_ms()
    authentication = broker.guard.authentication
    for session in list(broker.sessions):
        if session.closed:
            continue
        identity, renewal = session.identity, session.renewal
        if identity is not None and not authentication.counts(identity):
            guards.ended(identity, session.peer, _TAKEN_BACK)
            session.close(_TAKEN_BACK)
        elif renewal is not None:
            _check(session, renewal, now_ms)


def _check(session: SessionPort, renewal: Renewal, now_ms: int) -> None:
    verdict = renewal.check(now_ms)
    if verdict is RenewalVerdict.CHALLENGE:
        session.reply(
            commands.auth_challenge(
                f"Magnetar {magnetar.__version__}",
                features.PROTOCOL_VERSION,
                renewal.method,
                _CHALLENGE,
            )
        )
    elif verdict is RenewalVerdict.CLOSE:
        guards.ended(renewal.identity, session.peer, renewal.reason)
        session.close(renewal.reason)


def answered(session: SessionPort, command: Command) -> None:
    """Handles an AUTH_RESPONSE."""
    guard, renewal = session.broker.guard, session.renewal
    response = command.authResponse.response
    try:
        if guard is None or renewal is None:
            raise AuthenticationError("AUTH_RESPONSE without a challenge")
        credentials = renewal.answered(response.auth_method_name, response.auth_data)
    except AuthenticationError as error:
        _refuse(session, error)
        return
    session.broker.tasks.spawn(_verify(session, guard, renewal, credentials))


async def _verify(session: SessionPort, guard: Guard, renewal: Renewal, credentials: Credentials) -> None:
    try:
        renewal.proven(await guard.identify(credentials, session.peer))
    except AuthenticationError as error:
        _refuse(session, error)
        return
    session.identity = renewal.identity


def _refuse(session: SessionPort, error: AuthenticationError) -> None:
    if session.identity is not None:
        guards.ended(session.identity, session.peer, str(error))
    session.reply(commands.error(NO_REQUEST, wire_code(error), str(error)))
    session.close(str(error))


HANDLERS: dict[int, Handler] = {pb.BaseCommand.AUTH_RESPONSE: answered}

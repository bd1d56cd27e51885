"""How the proxy introduces a client at a broker (pure).

| At the proxy | CONNECT of the proxy holds |
|---|---|
| no authentication | the client's own credentials: the broker knows the client as if there were no proxy |
| authentication | the proxy's credentials, and the role that the client has proven as original principal |
| … and credentials are forwarded | also the client's credentials, which the broker verifies itself |

A client's own claim to speak for another role is never passed on: only the proxy makes such claims.
Source: Pulsar's DirectProxyHandler and ProxyClientCnx; PIP-337 is not needed for it.
"""

from __future__ import annotations

import magnetar
from magnetar.auth.identity import Credentials
from magnetar.wire import features
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import encode_command

VERSION = f"Magnetar {magnetar.__version__}"


def connected_for_questions(connect: pb.CommandConnect) -> bytes:
    """CONNECTED to a client that names no broker. The largest message is the brokers' matter, and lists of
    topics are watched at brokers."""
    flags = features.broker_features()
    flags.supports_topic_watchers = False
    body = pb.CommandConnected(
        server_version=VERSION,
        protocol_version=features.negotiated_version(connect.protocol_version),
        feature_flags=flags,
    )
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.CONNECTED, connected=body))


def introduce(
    connect: pb.CommandConnect, *, role: str, shown: Credentials, own: Credentials | None, forwards: bool
) -> bytes:
    """The frame with which the proxy begins a connection to a broker for a client.

    `connect`: the client's. `role`: what it has proven at the proxy, "" without authentication there.
    `shown`: its newest credentials. `own`: the proxy's, None: it has none. `forwards`: whether the broker
    gets the client's, too. Raises ValueError for credentials that cannot be forwarded.
    """
    body = pb.CommandConnect(
        client_version=connect.client_version,
        protocol_version=connect.protocol_version,
        proxy_version=VERSION,
    )
    if connect.HasField("feature_flags"):
        body.feature_flags.CopyFrom(connect.feature_flags)
    if not role:
        if shown.method:
            body.auth_method_name = shown.method
        if shown.data:
            body.auth_data = shown.data
    else:
        if own is not None:
            body.auth_method_name = own.method
            body.auth_data = own.data
        body.original_principal = role
        if forwards and shown.data:
            body.original_auth_method = shown.method
            # The field is a text; tokens and passwords are.
            body.original_auth_data = shown.data.decode()
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=body))

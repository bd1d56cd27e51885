"""What protocol versions and feature flags allow.

Version by version (what a peer of that version understands first):

    1 ping   2 redeliver   3 LZ4, ZLIB   4 batches   5 close without disconnect   6 checksums
    7 binary lookup   8 consumer stats   9 end of topic   10 proxy   11 checksums in C++ consumers
    12 last message id, active consumer, topics of a namespace   13 Avro for JSON schemas
    14 auth challenge, Key_Shared   15 get or create schema   16 broker metadata   17 ack receipts
    18 broker metadata for clients   19 transaction coordinator   20 topic migrated   21 AUTO_CONSUME

Newer abilities are told by feature flags alone.

Source: Pulsar binary protocol, ProtocolVersion, FeatureFlags; the command switch of the C++ client.
"""

from __future__ import annotations

from typing import Final

from magnetar.wire import pulsar_pb2 as pb

PROTOCOL_VERSION: Final = 21
"""The protocol version of this broker."""

VERSION_END_OF_TOPIC: Final = 9
VERSION_AUTH_CHALLENGE: Final = 14
VERSION_BROKER_METADATA: Final = 18


def negotiated_version(client_version: int) -> int:
    """The version that CONNECTED names to a client of `client_version`; never below 0."""
    return max(0, min(PROTOCOL_VERSION, client_version))


def broker_features(*, exposes_metadata: bool = False) -> pb.FeatureFlags:
    """The feature flags of this broker in CONNECTED. `exposes_metadata`: for all clients that ask for it.

    Deduplication of replicated positions, scalable topics and coordinator discovery are not supported.
    """
    return pb.FeatureFlags(
        supports_auth_refresh=True,
        supports_broker_entry_metadata=True if exposes_metadata else None,
        supports_partial_producer=True,
        supports_topic_watchers=True,
        supports_get_partitioned_metadata_without_auto_creation=True,
    )


def wants_broker_metadata(connect: pb.CommandConnect, *, exposes_metadata: bool = False) -> bool:
    """Whether MESSAGE frames to this client carry the 0x0e02 block. A broker that exposes it sends it to the
    clients that understand it; Magnetar's own client always gets it, and asks by a flag of its own."""
    flags = connect.feature_flags
    return connect.protocol_version >= VERSION_BROKER_METADATA and (
        flags.magnetar_takes_broker_entry_metadata
        or (exposes_metadata and flags.supports_broker_entry_metadata)
    )


def renews_credentials(connect: pb.CommandConnect) -> bool:
    """Whether the client answers AUTH_CHALLENGE with a new credential."""
    return connect.protocol_version >= VERSION_AUTH_CHALLENGE and connect.feature_flags.supports_auth_refresh


def takes_end_of_topic(connect: pb.CommandConnect) -> bool:
    """Whether the client survives REACHED_END_OF_TOPIC: only the WebSocket API, and Java clients that name
    their library in the version.

    Clients on the C++ library send a version too, and close the connection on this command. Java clients
    before 3.0 send a bare number as old C++ clients do; they are not told, and wait.
    """
    return connect.protocol_version >= VERSION_END_OF_TOPIC and connect.client_version.startswith(
        (_JAVA_CLIENT, WEBSOCKET_CLIENT)
    )


_JAVA_CLIENT: Final = "Pulsar-Java-v"
WEBSOCKET_CLIENT: Final = "Magnetar-WebSocket-v"
"""How the WebSocket API's connections to brokers name themselves; the version follows."""


CPP_CLIENT_COMMANDS: Final = frozenset(
    (
        pb.BaseCommand.CONNECTED,
        pb.BaseCommand.SEND_RECEIPT,
        pb.BaseCommand.SEND_ERROR,
        pb.BaseCommand.MESSAGE,
        pb.BaseCommand.SUCCESS,
        pb.BaseCommand.ERROR,
        pb.BaseCommand.CLOSE_PRODUCER,
        pb.BaseCommand.CLOSE_CONSUMER,
        pb.BaseCommand.PRODUCER_SUCCESS,
        pb.BaseCommand.PING,
        pb.BaseCommand.PONG,
        pb.BaseCommand.PARTITIONED_METADATA_RESPONSE,
        pb.BaseCommand.LOOKUP_RESPONSE,
        pb.BaseCommand.CONSUMER_STATS_RESPONSE,
        pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE,
        pb.BaseCommand.ACTIVE_CONSUMER_CHANGE,
        pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        pb.BaseCommand.GET_SCHEMA_RESPONSE,
        pb.BaseCommand.AUTH_CHALLENGE,
        pb.BaseCommand.ACK_RESPONSE,
        pb.BaseCommand.TOPIC_MIGRATED,
    )
)
"""The commands that the C++ client, and so the Python and Node clients, accept from a broker. The client
closes the connection on all others, such as REACHED_END_OF_TOPIC."""

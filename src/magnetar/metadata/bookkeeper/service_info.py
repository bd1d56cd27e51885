"""The record that a registered bookie publishes: protobuf; empty in early releases.

Source: BookKeeper's BookieServiceInfo.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from magnetar.base.errors import MetadataError
from magnetar.metadata.bookkeeper.nodes_pb2 import BookieServiceInfoFormat
from magnetar.metadata.bookkeeper.registry import BookieEndpoint, RegisteredBookie


def encode_info(info: RegisteredBookie) -> bytes:
    """Value of the registration's node."""
    return BookieServiceInfoFormat(
        endpoints=[
            BookieServiceInfoFormat.Endpoint(
                id=endpoint.id,
                port=endpoint.port,
                host=endpoint.host,
                protocol=endpoint.protocol,
                auth=endpoint.auth,
                extensions=endpoint.extensions,
            )
            for endpoint in info.endpoints
        ],
        properties=dict(info.properties),
    ).SerializeToString(deterministic=True)


def decode_info(bookie_id: str, value: bytes) -> RegisteredBookie:
    """The record from the node's value. Raises MetadataError."""
    try:
        message = BookieServiceInfoFormat.FromString(value)
    except DecodeError as error:
        raise MetadataError(f"the registration of bookie {bookie_id} is damaged: {error}") from error
    return RegisteredBookie(
        bookie_id,
        tuple(
            BookieEndpoint(
                part.id, part.port, part.host, part.protocol, tuple(part.auth), tuple(part.extensions)
            )
            for part in message.endpoints
        ),
        dict(message.properties),
    )

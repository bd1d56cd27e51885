"""Replies of a broker, one function each. Every one returns the bytes of one simple frame.

Optional texts and ids that are None are left out of the frame.

Source: Pulsar binary protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from magnetar.base.ids import ConsumerId, Position, ProducerId, RequestId
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import NO_ID, NO_REQUEST, encode_command

_Type = pb.BaseCommand.Type

PING: Final = encode_command(pb.BaseCommand(type=_Type.PING, ping=pb.CommandPing()))
PONG: Final = encode_command(pb.BaseCommand(type=_Type.PONG, pong=pb.CommandPong()))


def message_id_data(position: Position, *, partition: int = -1, batch_index: int = -1) -> pb.MessageIdData:
    """A message id; -1 in a position travels as 2^64 - 1, a partition or batch index of -1 is left out."""
    data = pb.MessageIdData(ledgerId=position.ledger_id & NO_ID, entryId=position.entry_id & NO_ID)
    if partition >= 0:
        data.partition = partition
    if batch_index >= 0:
        data.batch_index = batch_index
    return data


def connected(
    server_version: str, protocol_version: int, message_bytes_max: int, features: pb.FeatureFlags
) -> bytes:
    """The handshake is over. `protocol_version` is the negotiated one."""
    body = pb.CommandConnected(
        server_version=server_version,
        protocol_version=protocol_version,
        max_message_size=message_bytes_max,
        feature_flags=features,
    )
    return encode_command(pb.BaseCommand(type=_Type.CONNECTED, connected=body))


def auth_challenge(server_version: str, protocol_version: int, method: str, data: bytes) -> bytes:
    """Asks for an AUTH_RESPONSE."""
    body = pb.CommandAuthChallenge(
        server_version=server_version,
        protocol_version=protocol_version,
        challenge=pb.AuthData(auth_method_name=method, auth_data=data),
    )
    return encode_command(pb.BaseCommand(type=_Type.AUTH_CHALLENGE, authChallenge=body))


def success(request_id: RequestId, *, schema: pb.Schema | None = None) -> bytes:
    """A request succeeded and has no other answer."""
    body = pb.CommandSuccess(request_id=request_id, schema=schema)
    return encode_command(pb.BaseCommand(type=_Type.SUCCESS, success=body))


def error(request_id: RequestId, code: pb.ServerError, message: str) -> bytes:
    """A request failed."""
    body = pb.CommandError(request_id=request_id, error=code, message=message)
    return encode_command(pb.BaseCommand(type=_Type.ERROR, error=body))


def send_error(producer_id: ProducerId, sequence_id: int, code: pb.ServerError, message: str) -> bytes:
    """A publish failed."""
    body = pb.CommandSendError(producer_id=producer_id, sequence_id=sequence_id, error=code, message=message)
    return encode_command(pb.BaseCommand(type=_Type.SEND_ERROR, send_error=body))


def producer_success(
    request_id: RequestId,
    producer_name: str,
    *,
    last_sequence_id: int = -1,
    schema_version: bytes | None = None,
    topic_epoch: int | None = None,
    ready: bool = True,
) -> bytes:
    """A producer is open; not `ready` means that it waits for exclusive access and a second answer follows.

    `last_sequence_id` is the last one stored by a producer of this name, -1 when there is none.
    """
    body = pb.CommandProducerSuccess(
        request_id=request_id,
        producer_name=producer_name,
        last_sequence_id=last_sequence_id,
        # C++ clients take a version that is absent for "no schema"; empty bytes say the same.
        schema_version=schema_version,
        topic_epoch=topic_epoch,
        producer_ready=ready,
    )
    return encode_command(pb.BaseCommand(type=_Type.PRODUCER_SUCCESS, producer_success=body))


def close_producer(producer_id: ProducerId, request_id: RequestId = NO_REQUEST) -> bytes:
    """The broker lets a producer go: the client looks the topic up again. The id answers no request."""
    body = pb.CommandCloseProducer(producer_id=producer_id, request_id=request_id)
    return encode_command(pb.BaseCommand(type=_Type.CLOSE_PRODUCER, close_producer=body))


def close_consumer(consumer_id: ConsumerId, request_id: RequestId = NO_REQUEST) -> bytes:
    """The broker lets a consumer go: the client looks the topic up again. The id answers no request."""
    body = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id)
    return encode_command(pb.BaseCommand(type=_Type.CLOSE_CONSUMER, close_consumer=body))


def partitions(request_id: RequestId, count: int) -> bytes:
    """A topic has `count` partitions; 0 says that it is not partitioned."""
    body = pb.CommandPartitionedTopicMetadataResponse(
        request_id=request_id,
        partitions=count,
        response=pb.CommandPartitionedTopicMetadataResponse.Success,
    )
    return encode_command(
        pb.BaseCommand(type=_Type.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=body)
    )


def partitions_error(request_id: RequestId, code: pb.ServerError, message: str) -> bytes:
    """The number of partitions cannot be told."""
    body = pb.CommandPartitionedTopicMetadataResponse(
        request_id=request_id,
        response=pb.CommandPartitionedTopicMetadataResponse.Failed,
        error=code,
        message=message,
    )
    return encode_command(
        pb.BaseCommand(type=_Type.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=body)
    )


def lookup_response(
    request_id: RequestId,
    service_url: str,
    *,
    service_url_tls: str = "",
    authoritative: bool = True,
    redirect: bool = False,
    through_service_url: bool = False,
) -> bytes:
    """Where a topic is served: connect there, or (`redirect`) ask there again.

    An empty URL: it is not served that way. `through_service_url`: connect to the address that the client
    knows already.
    """
    Response = pb.CommandLookupTopicResponse  # noqa: N806  # a class
    body = Response(
        request_id=request_id,
        brokerServiceUrl=service_url or None,
        brokerServiceUrlTls=service_url_tls or None,
        response=Response.Redirect if redirect else Response.Connect,
        authoritative=authoritative,
        proxy_through_service_url=through_service_url,
    )
    return encode_command(pb.BaseCommand(type=_Type.LOOKUP_RESPONSE, lookupTopicResponse=body))


def lookup_error(request_id: RequestId, code: pb.ServerError, message: str) -> bytes:
    """The owner of a topic cannot be told."""
    body = pb.CommandLookupTopicResponse(
        request_id=request_id,
        response=pb.CommandLookupTopicResponse.Failed,
        error=code,
        message=message,
    )
    return encode_command(pb.BaseCommand(type=_Type.LOOKUP_RESPONSE, lookupTopicResponse=body))


def ack_response(
    consumer_id: ConsumerId,
    request_id: RequestId,
    *,
    code: pb.ServerError | None = None,
    message: str | None = None,
) -> bytes:
    """The ack with this request id was applied, or failed with `code`."""
    body = pb.CommandAckResponse(consumer_id=consumer_id, request_id=request_id, error=code, message=message)
    return encode_command(pb.BaseCommand(type=_Type.ACK_RESPONSE, ackResponse=body))


def active_consumer_change(consumer_id: ConsumerId, *, active: bool) -> bytes:
    """The consumer became the active one of its subscription, or stopped to be. For version 12 and later."""
    body = pb.CommandActiveConsumerChange(consumer_id=consumer_id, is_active=active)
    return encode_command(pb.BaseCommand(type=_Type.ACTIVE_CONSUMER_CHANGE, active_consumer_change=body))


def last_message_id(
    request_id: RequestId,
    last: Position,
    *,
    partition: int = -1,
    batch_index: int = -1,
    mark_delete: Position | None = None,
) -> bytes:
    """The last message of a topic (-1:-1 when empty) and where the subscription's cursor stands."""
    body = pb.CommandGetLastMessageIdResponse(
        request_id=request_id,
        last_message_id=message_id_data(last, partition=partition, batch_index=batch_index),
        consumer_mark_delete_position=None if mark_delete is None else message_id_data(mark_delete),
    )
    return encode_command(
        pb.BaseCommand(type=_Type.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=body)
    )


def topics_of_namespace(
    request_id: RequestId,
    topics: Iterable[str],
    *,
    filtered: bool = False,
    topics_hash: str | None = None,
    changed: bool = True,
) -> bytes:
    """Names of the topics; none and not `changed` when the client's hash was right."""
    body = pb.CommandGetTopicsOfNamespaceResponse(
        request_id=request_id, topics=topics, filtered=filtered, topics_hash=topics_hash, changed=changed
    )
    return encode_command(
        pb.BaseCommand(type=_Type.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=body)
    )


def watch_topic_list_success(
    request_id: RequestId, watcher_id: int, topics: Iterable[str], topics_hash: str
) -> bytes:
    """The watch has begun; names of the topics that match, none when the client's hash was right."""
    body = pb.CommandWatchTopicListSuccess(
        request_id=request_id, watcher_id=watcher_id, topic=topics, topics_hash=topics_hash
    )
    return encode_command(pb.BaseCommand(type=_Type.WATCH_TOPIC_LIST_SUCCESS, watchTopicListSuccess=body))


def watch_topic_update(
    watcher_id: int, new: Iterable[str], deleted: Iterable[str], topics_hash: str
) -> bytes:
    """Topics that match came or went. Only for clients that watch: the C++ client knows no such command."""
    body = pb.CommandWatchTopicUpdate(
        watcher_id=watcher_id, new_topics=new, deleted_topics=deleted, topics_hash=topics_hash
    )
    return encode_command(pb.BaseCommand(type=_Type.WATCH_TOPIC_UPDATE, watchTopicUpdate=body))


def schema_found(request_id: RequestId, schema: pb.Schema, version: bytes) -> bytes:
    """The schema asked for; `version` is eight bytes, big-endian."""
    body = pb.CommandGetSchemaResponse(request_id=request_id, schema=schema, schema_version=version)
    return encode_command(pb.BaseCommand(type=_Type.GET_SCHEMA_RESPONSE, getSchemaResponse=body))


def schema_error(request_id: RequestId, code: pb.ServerError, message: str) -> bytes:
    """The schema asked for cannot be given."""
    body = pb.CommandGetSchemaResponse(request_id=request_id, error_code=code, error_message=message)
    return encode_command(pb.BaseCommand(type=_Type.GET_SCHEMA_RESPONSE, getSchemaResponse=body))


def schema_registered(request_id: RequestId, version: bytes) -> bytes:
    """GET_OR_CREATE_SCHEMA succeeded; `version` is eight bytes, big-endian."""
    body = pb.CommandGetOrCreateSchemaResponse(request_id=request_id, schema_version=version)
    return encode_command(
        pb.BaseCommand(type=_Type.GET_OR_CREATE_SCHEMA_RESPONSE, getOrCreateSchemaResponse=body)
    )


def schema_refused(request_id: RequestId, code: pb.ServerError, message: str) -> bytes:
    """GET_OR_CREATE_SCHEMA failed."""
    body = pb.CommandGetOrCreateSchemaResponse(request_id=request_id, error_code=code, error_message=message)
    return encode_command(
        pb.BaseCommand(type=_Type.GET_OR_CREATE_SCHEMA_RESPONSE, getOrCreateSchemaResponse=body)
    )


def consumer_stats(stats: pb.CommandConsumerStatsResponse) -> bytes:
    """What the broker knows of a consumer, or `error_code` and `error_message`."""
    return encode_command(pb.BaseCommand(type=_Type.CONSUMER_STATS_RESPONSE, consumerStatsResponse=stats))


def reached_end_of_topic(consumer_id: ConsumerId) -> bytes:
    """No message will follow. Never for C++ clients, see `features.CPP_CLIENT_COMMANDS`."""
    body = pb.CommandReachedEndOfTopic(consumer_id=consumer_id)
    return encode_command(pb.BaseCommand(type=_Type.REACHED_END_OF_TOPIC, reachedEndOfTopic=body))

"""Replies of a broker: one function per command, each returns the bytes of one simple frame.

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
    """A message id. -1 in a position travels as 2^64 - 1; a partition or batch index of -1 is left out."""
    data = pb.MessageIdData(ledgerId=position.ledger_id & NO_ID, entryId=position.entry_id & NO_ID)
    if partition >= 0:
        data.partition = partition
    if batch_index >= 0:
        data.batch_index = batch_index
    return data


def connected(
    server_version: str, protocol_version: int, message_bytes_max: int, features: pb.FeatureFlags
) -> bytes:
    """CONNECTED: the handshake is over. `protocol_version` is the negotiated version."""
    body = pb.CommandConnected(
        server_version=server_version,
        protocol_version=protocol_version,
        max_message_size=message_bytes_max,
        feature_flags=features,
    )
    return encode_command(pb.BaseCommand(type=_Type.CONNECTED, connected=body))


def auth_challenge(server_version: str, protocol_version: int, method: str, data: bytes) -> bytes:
    """AUTH_CHALLENGE: asks for an AUTH_RESPONSE."""
    body = pb.CommandAuthChallenge(
        server_version=server_version,
        protocol_version=protocol_version,
        challenge=pb.AuthData(auth_method_name=method, auth_data=data),
    )
    return encode_command(pb.BaseCommand(type=_Type.AUTH_CHALLENGE, authChallenge=body))


def success(request_id: RequestId, *, schema: pb.Schema | None = None) -> bytes:
    """SUCCESS: a request without a response of its own succeeded."""
    body = pb.CommandSuccess(request_id=request_id, schema=schema)
    return encode_command(pb.BaseCommand(type=_Type.SUCCESS, success=body))


def error(request_id: RequestId, code: pb.ServerError, message: str) -> bytes:
    """ERROR: a request failed."""
    body = pb.CommandError(request_id=request_id, error=code, message=message)
    return encode_command(pb.BaseCommand(type=_Type.ERROR, error=body))


def send_error(producer_id: ProducerId, sequence_id: int, code: pb.ServerError, message: str) -> bytes:
    """SEND_ERROR: a publish failed."""
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
    """PRODUCER_SUCCESS: a producer is open. Without `ready` the producer waits for exclusive access, and a
    second response follows.

    `last_sequence_id` is the last one stored by a producer of this name, -1 when there is none.
    """
    body = pb.CommandProducerSuccess(
        request_id=request_id,
        producer_name=producer_name,
        last_sequence_id=last_sequence_id,
        # C++ clients read an absent version as "no schema"; empty bytes mean the same.
        schema_version=schema_version,
        topic_epoch=topic_epoch,
        producer_ready=ready,
    )
    return encode_command(pb.BaseCommand(type=_Type.PRODUCER_SUCCESS, producer_success=body))


def close_producer(
    producer_id: ProducerId, request_id: RequestId = NO_REQUEST, *, url: str = "", url_tls: str = ""
) -> bytes:
    """CLOSE_PRODUCER: the broker closes a producer, and the client looks the topic up again. The request id
    answers no request."""
    body = pb.CommandCloseProducer(
        producer_id=producer_id,
        request_id=request_id,
        assignedBrokerServiceUrl=url or None,
        assignedBrokerServiceUrlTls=url_tls or None,
    )
    return encode_command(pb.BaseCommand(type=_Type.CLOSE_PRODUCER, close_producer=body))


def close_consumer(
    consumer_id: ConsumerId, request_id: RequestId = NO_REQUEST, *, url: str = "", url_tls: str = ""
) -> bytes:
    """CLOSE_CONSUMER: the broker closes a consumer, and the client looks the topic up again. The request id
    answers no request."""
    body = pb.CommandCloseConsumer(
        consumer_id=consumer_id,
        request_id=request_id,
        assignedBrokerServiceUrl=url or None,
        assignedBrokerServiceUrlTls=url_tls or None,
    )
    return encode_command(pb.BaseCommand(type=_Type.CLOSE_CONSUMER, close_consumer=body))


def partitions(request_id: RequestId, count: int) -> bytes:
    """PARTITIONED_METADATA_RESPONSE: the topic has `count` partitions; 0 when it is not partitioned."""
    body = pb.CommandPartitionedTopicMetadataResponse(
        request_id=request_id,
        partitions=count,
        response=pb.CommandPartitionedTopicMetadataResponse.Success,
    )
    return encode_command(
        pb.BaseCommand(type=_Type.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=body)
    )


def partitions_error(request_id: RequestId, code: pb.ServerError, message: str) -> bytes:
    """PARTITIONED_METADATA_RESPONSE with an error: the number of partitions is not known."""
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
    """LOOKUP_RESPONSE: where a topic is served. The client connects there, or with `redirect` repeats the
    lookup there.

    An empty URL: the topic is not served over that transport. `through_service_url`: the client connects to
    the address that it already has.
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
    """LOOKUP_RESPONSE with an error: the owner of the topic is not known."""
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
    """ACK_RESPONSE: the ack with this request id was applied, or failed with `code`."""
    body = pb.CommandAckResponse(consumer_id=consumer_id, request_id=request_id, error=code, message=message)
    return encode_command(pb.BaseCommand(type=_Type.ACK_RESPONSE, ackResponse=body))


def active_consumer_change(consumer_id: ConsumerId, *, active: bool) -> bytes:
    """ACTIVE_CONSUMER_CHANGE: the consumer became the active one of its subscription, or is no longer. For
    protocol version 12 and later."""
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
    """GET_LAST_MESSAGE_ID_RESPONSE: the last message of a topic (-1:-1 when empty), and the subscription's
    mark-delete."""
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
    """GET_TOPICS_OF_NAMESPACE_RESPONSE: names of the topics; empty and not `changed` when the client's hash
    matches."""
    body = pb.CommandGetTopicsOfNamespaceResponse(
        request_id=request_id, topics=topics, filtered=filtered, topics_hash=topics_hash, changed=changed
    )
    return encode_command(
        pb.BaseCommand(type=_Type.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=body)
    )


def watch_topic_list_success(
    request_id: RequestId, watcher_id: int, topics: Iterable[str], topics_hash: str
) -> bytes:
    """WATCH_TOPIC_LIST_SUCCESS: the watch has begun; names of the matching topics, empty when the client's
    hash matches."""
    body = pb.CommandWatchTopicListSuccess(
        request_id=request_id, watcher_id=watcher_id, topic=topics, topics_hash=topics_hash
    )
    return encode_command(pb.BaseCommand(type=_Type.WATCH_TOPIC_LIST_SUCCESS, watchTopicListSuccess=body))


def watch_topic_update(
    watcher_id: int, new: Iterable[str], deleted: Iterable[str], topics_hash: str
) -> bytes:
    """WATCH_TOPIC_UPDATE: matching topics were created or deleted. Only for clients that watch: the C++
    client does not know this command."""
    body = pb.CommandWatchTopicUpdate(
        watcher_id=watcher_id, new_topics=new, deleted_topics=deleted, topics_hash=topics_hash
    )
    return encode_command(pb.BaseCommand(type=_Type.WATCH_TOPIC_UPDATE, watchTopicUpdate=body))


def schema_found(request_id: RequestId, schema: pb.Schema, version: bytes) -> bytes:
    """GET_SCHEMA_RESPONSE: a schema; `version` is eight bytes, big-endian."""
    body = pb.CommandGetSchemaResponse(request_id=request_id, schema=schema, schema_version=version)
    return encode_command(pb.BaseCommand(type=_Type.GET_SCHEMA_RESPONSE, getSchemaResponse=body))


def schema_error(request_id: RequestId, code: pb.ServerError, message: str) -> bytes:
    """GET_SCHEMA_RESPONSE with an error."""
    body = pb.CommandGetSchemaResponse(request_id=request_id, error_code=code, error_message=message)
    return encode_command(pb.BaseCommand(type=_Type.GET_SCHEMA_RESPONSE, getSchemaResponse=body))


def schema_registered(request_id: RequestId, version: bytes) -> bytes:
    """GET_OR_CREATE_SCHEMA_RESPONSE: success; `version` is eight bytes, big-endian."""
    body = pb.CommandGetOrCreateSchemaResponse(request_id=request_id, schema_version=version)
    return encode_command(
        pb.BaseCommand(type=_Type.GET_OR_CREATE_SCHEMA_RESPONSE, getOrCreateSchemaResponse=body)
    )


def schema_refused(request_id: RequestId, code: pb.ServerError, message: str) -> bytes:
    """GET_OR_CREATE_SCHEMA_RESPONSE with an error."""
    body = pb.CommandGetOrCreateSchemaResponse(request_id=request_id, error_code=code, error_message=message)
    return encode_command(
        pb.BaseCommand(type=_Type.GET_OR_CREATE_SCHEMA_RESPONSE, getOrCreateSchemaResponse=body)
    )


def consumer_stats(stats: pb.CommandConsumerStatsResponse) -> bytes:
    """CONSUMER_STATS_RESPONSE: statistics of a consumer, or `error_code` and `error_message`."""
    return encode_command(pb.BaseCommand(type=_Type.CONSUMER_STATS_RESPONSE, consumerStatsResponse=stats))


def reached_end_of_topic(consumer_id: ConsumerId) -> bytes:
    """REACHED_END_OF_TOPIC: the topic was terminated and all messages were delivered. Never for C++ clients,
    see `features.CPP_CLIENT_COMMANDS`."""
    body = pb.CommandReachedEndOfTopic(consumer_id=consumer_id)
    return encode_command(pb.BaseCommand(type=_Type.REACHED_END_OF_TOPIC, reachedEndOfTopic=body))

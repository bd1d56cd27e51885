"""Parses the parameters of the query (pure). Unknown ones are ignored, as in Pulsar.

Source: Pulsar's WebSocket API: names, units, defaults.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from magnetar.base.ids import EARLIEST, LATEST, Position
from magnetar.websocket.errors import BadQueryError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import position_of

QUEUE_MAX: Final = 1_000
"""Most unacknowledged messages of a client that does not pull; Pulsar's bound and default."""
_PENDING_MAX: Final = 1_000
"""Most messages of a producer without an answer."""
_NACK_DELAY_MS: Final = 60_000
_SEND_TIMEOUT_MS: Final = 30_000
_BATCH_MESSAGES: Final = 1_000
_BATCH_DELAY_MS: Final = 1

# The first of each list is the default.
_COMPRESSIONS: Final = {
    "NONE": pb.NONE,
    "LZ4": pb.LZ4,
    "ZLIB": pb.ZLIB,
    "ZSTD": pb.ZSTD,
    "SNAPPY": pb.SNAPPY,
}
_SUBSCRIPTION_TYPES: Final = {
    "Exclusive": pb.CommandSubscribe.Exclusive,
    "Shared": pb.CommandSubscribe.Shared,
    "Failover": pb.CommandSubscribe.Failover,
    "Key_Shared": pb.CommandSubscribe.Key_Shared,
}
_ROUTINGS: Final = ("SinglePartition", "RoundRobinPartition", "CustomPartition")
_HASHES: Final = ("JavaStringHash", "Murmur3_32Hash")
_CRYPTO: Final = ("FAIL", "DISCARD", "CONSUME")


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Options of a producer."""

    name: str
    initial_sequence_id: int | None
    """Sequence id before that of the first message; None: the broker's last one."""
    murmur: bool
    """Whether keys are hashed by Murmur3 instead of Java's string hash."""
    round_robin: bool
    """Whether messages without a key go to all partitions in turn; else to a single one."""
    send_timeout_ms: int
    """Milliseconds after which a message without a receipt fails; 0: never."""
    pending_max: int
    batch_messages_max: int
    """Most messages of a batch; 1: no batches."""
    batch_delay_ms: int
    compression: pb.CompressionType


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Options of a consumer, and of a reader."""

    name: str
    kind: pb.CommandSubscribe.SubType
    durable: bool
    queue_size: int
    """Most unacknowledged messages of the client."""
    pull: bool
    """Whether the client requests messages with `permit`."""
    priority: int
    ack_timeout_ms: int
    """Milliseconds after which an unacknowledged message is redelivered; 0: never."""
    nack_delay_ms: int
    redeliveries_max: int | None
    """Redeliveries after which a message is published to the dead letter topic; None: no dead letters."""
    dead_letter_topic: str
    """Name of the dead letter topic; "": the default name of topic and subscription."""
    crypto_failure: str
    earliest: bool
    """Whether a new subscription begins with the first message; else with the next one."""
    start: Position | None = None
    """Start of a reader: the entry after which it begins, or EARLIEST or LATEST."""
    start_batch_index: int = -1
    """Start of a reader: the message in that entry after which it begins; -1: the whole entry."""


def producer_options(query: Mapping[str, str]) -> ProducerOptions:
    """Raises BadQueryError."""
    if query.get("encryptionKeys"):
        raise BadQueryError("encryptionKeys: the broker does not encrypt; encrypt where the keys are")
    batching = _flag(query, "batchingEnabled")
    return ProducerOptions(
        name=query.get("producerName", ""),
        initial_sequence_id=_number(query, "initialSequenceId", least=-1),
        murmur=_choice(query, "hashingScheme", _HASHES) == "Murmur3_32Hash",
        round_robin=_choice(query, "messageRoutingMode", _ROUTINGS) == "RoundRobinPartition",
        send_timeout_ms=_given(_number(query, "sendTimeoutMillis"), _SEND_TIMEOUT_MS),
        pending_max=min(max(1, _given(_number(query, "maxPendingMessages"), _PENDING_MAX)), _PENDING_MAX),
        batch_messages_max=_given(_number(query, "batchingMaxMessages", least=1), _BATCH_MESSAGES)
        if batching
        else 1,
        batch_delay_ms=_given(_number(query, "batchingMaxPublishDelay", least=1), _BATCH_DELAY_MS),
        compression=_COMPRESSIONS[_choice(query, "compressionType", tuple(_COMPRESSIONS))],
    )


def consumer_options(query: Mapping[str, str]) -> ConsumerOptions:
    """Raises BadQueryError."""
    position = _choice(query, "subscriptionInitialPosition", ("Latest", "Earliest"))
    return ConsumerOptions(
        name=query.get("consumerName", ""),
        kind=_SUBSCRIPTION_TYPES[_choice(query, "subscriptionType", tuple(_SUBSCRIPTION_TYPES))],
        durable=_choice(query, "subscriptionMode", ("Durable", "NonDurable")) == "Durable",
        queue_size=_queue_size(query),
        pull=_flag(query, "pullMode"),
        priority=_given(_number(query, "priorityLevel"), 0),
        ack_timeout_ms=_ack_timeout_ms(query),
        nack_delay_ms=_given(_number(query, "negativeAckRedeliveryDelay"), _NACK_DELAY_MS),
        redeliveries_max=_redeliveries_max(query),
        dead_letter_topic=query.get("deadLetterTopic", ""),
        crypto_failure=_choice(query, "cryptoFailureAction", _CRYPTO),
        earliest=position == "Earliest",
    )


def reader_options(query: Mapping[str, str]) -> ConsumerOptions:
    """Raises BadQueryError."""
    start, batch_index = _start(query.get("messageId", ""))
    return ConsumerOptions(
        name=query.get("readerName", ""),
        kind=pb.CommandSubscribe.Exclusive,
        durable=False,
        queue_size=_queue_size(query),
        pull=False,
        priority=0,
        ack_timeout_ms=0,
        nack_delay_ms=0,
        redeliveries_max=None,
        dead_letter_topic="",
        crypto_failure=_choice(query, "cryptoFailureAction", _CRYPTO),
        earliest=start == EARLIEST,
        start=start,
        start_batch_index=batch_index,
    )


def _start(text: str) -> tuple[Position, int]:
    if text in ("", "latest"):
        return LATEST, -1
    if text == "earliest":
        return EARLIEST, -1
    try:
        # A "+" that was not percent-encoded arrives as a space.
        data = pb.MessageIdData.FromString(b64decode(text.replace(" ", "+"), validate=True))
    except (ValueError, binascii.Error, DecodeError):
        data = pb.MessageIdData()
    if not data.IsInitialized():
        raise BadQueryError("messageId is earliest, latest or a message id in base64")
    return position_of(data), data.batch_index if data.HasField("batch_index") else -1


def _queue_size(query: Mapping[str, str]) -> int:
    return min(max(1, _given(_number(query, "receiverQueueSize"), QUEUE_MAX)), QUEUE_MAX)


def _ack_timeout_ms(query: Mapping[str, str]) -> int:
    timeout_ms = _given(_number(query, "ackTimeoutMillis"), 0)
    if 0 < timeout_ms < 1_000:
        raise BadQueryError("ackTimeoutMillis must be 0 or at least 1000")
    return timeout_ms


def _redeliveries_max(query: Mapping[str, str]) -> int | None:
    most = _number(query, "maxRedeliverCount", least=1)
    if most is None and query.get("deadLetterTopic"):
        raise BadQueryError("deadLetterTopic needs maxRedeliverCount")
    return most


def _given(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _number(query: Mapping[str, str], name: str, least: int = 0) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        raise BadQueryError(f"{name} must be a number, not {text[:40]!r}") from None
    if not least <= number < 1 << 63:
        raise BadQueryError(f"{name} must be at least {least}, not {text[:40]}")
    return number


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() == "true"


def _choice(query: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = query.get(name, "") or choices[0]
    if text not in choices:
        raise BadQueryError(f"{name} is one of {', '.join(choices)}, not {text[:40]!r}")
    return text

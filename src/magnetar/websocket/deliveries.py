"""Opens entries and returns their messages (pure).

Source: Pulsar binary protocol: batches, compression, encryption, PIP-37 (pieces of large messages).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import MagnetarError
from magnetar.base.expressions import as_text
from magnetar.base.ids import Position
from magnetar.base.large_bytes import as_bytes
from magnetar.client.compression import plain_within
from magnetar.websocket.errors import UndeliverableError
from magnetar.websocket.memory import ByteCount
from magnetar.wire import payload
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.messages import MessageEvent

_EARLIER_MAX: Final = 100
"""Most remembered pieces of earlier attempts to send one large message."""
_LARGE_MESSAGES_MAX: Final = 10
"""Most incomplete large messages of one topic. One more drops the oldest, as in Pulsar's clients; its pieces
are redelivered."""
_OBJECT_BYTES: Final = 512
"""Bytes of memory that a message or a piece takes besides its payload."""
LARGE_BYTES_MAX: Final = 64 << 20
"""Most bytes of a large message that is assembled in the broker's memory."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message for a client."""

    position: Position
    batch_index: int
    """Index in its batch; -1 when the message is not in a batch."""
    batch_size: int
    payload: bytes | memoryview
    key: str | None
    key_is_base64: bool
    properties: Mapping[str, str]
    publish_ms: int
    event_ms: int
    redelivery_count: int
    encryption: Mapping[str, object] | None = None
    """Data with which the client decrypts the message; None when it is not encrypted."""
    pieces: tuple[Position, ...] = ()
    """Positions of the other pieces of a large message."""

    @property
    def size_bytes(self) -> int:
        """Approximate bytes of memory."""
        texts = sum(len(name) + len(text) for name, text in self.properties.items())
        return _OBJECT_BYTES + len(self.payload) + len(self.key or "") + texts


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened entry."""

    permits: int
    """Permits that the broker counted for the entry."""
    messages: list[Incoming]
    discarded: bool = False
    """Whether the consumer must acknowledge the entry itself, because the client does not get it."""


class _Pieces:
    """The pieces of one large message that have arrived."""

    __slots__ = ("earlier", "found", "size_bytes")

    def __init__(self, earlier: list[Position]) -> None:
        self.found: list[tuple[Position, bytes]] = []
        self.earlier = earlier
        """Pieces of earlier attempts to send the message; they are settled with it."""
        self.size_bytes = 0

    def positions(self) -> list[Position]:
        """Positions of all pieces that came, the latest last."""
        return [*self.earlier, *(position for position, _ in self.found)]

    def has(self, number: int, position: Position) -> bool:
        """Whether this entry has come before, so that it is a redelivery."""
        return number < len(self.found) and self.found[number][0] == position


class Opener:
    """Opens the entries of one topic or partition."""

    def __init__(
        self, crypto_failure: str, message_bytes_max: int, pieces_held: ByteCount | None = None
    ) -> None:
        """`crypto_failure`: FAIL, DISCARD or CONSUME, for encrypted messages. `pieces_held` counts the bytes
        of pieces of incomplete large messages."""
        self._crypto_failure = crypto_failure
        self._plain_bytes_max = max(message_bytes_max, LARGE_BYTES_MAX)
        self._pieces: dict[str, _Pieces] = {}
        self._pieces_held = pieces_held or ByteCount()

    def look(self, event: MessageEvent) -> pb.MessageMetadata:
        """The metadata of an entry. Raises UndeliverableError."""
        if not event.intact:
            raise UndeliverableError(f"message {event.position} does not match its checksum")
        try:
            return payload.parse_metadata(event.entry[event.metadata_at : event.payload_at])
        except MagnetarError as error:
            raise UndeliverableError(f"message {event.position}: {error}") from error

    def cost(self, event: MessageEvent, metadata: pb.MessageMetadata) -> int:
        """Most bytes of memory that opening the entry takes."""
        size = len(event.entry) - event.payload_at
        if metadata.compression != pb.NONE:
            size += min(metadata.uncompressed_size, self._plain_bytes_max)
        if payload.is_batch(metadata):
            size += metadata.num_messages_in_batch * _OBJECT_BYTES
        return size

    def open(self, event: MessageEvent, metadata: pb.MessageMetadata | None = None) -> Opened:
        """Opens an entry. `metadata`: the result of `look`; None: it is read here. Raises
        UndeliverableError."""
        try:
            return self._open(event, metadata or self.look(event))
        except UndeliverableError:
            raise
        except MagnetarError as error:
            raise UndeliverableError(f"message {event.position}: {error}") from error

    def _open(self, event: MessageEvent, metadata: pb.MessageMetadata) -> Opened:
        body = event.entry[event.payload_at :]
        if metadata.encryption_keys:
            return self._encrypted(event, metadata, body)
        if metadata.num_chunks_from_msg > 1:
            return self._piece(event, metadata, body)
        plain = self._plain(metadata, body)
        if not payload.is_batch(metadata):
            return Opened(1, [_single(event, metadata, plain)])
        return _batch(event, metadata, plain)

    def _plain(self, metadata: pb.MessageMetadata, body: bytes) -> bytes | memoryview:
        size = metadata.uncompressed_size
        if metadata.compression != pb.NONE and size > self._plain_bytes_max:
            # The producer names the size: too large a value must not take the memory of all clients.
            raise UndeliverableError(f"the message claims to have {size} bytes")
        return plain_within(metadata.compression, body, size)

    def _encrypted(self, event: MessageEvent, metadata: pb.MessageMetadata, body: bytes) -> Opened:
        count = metadata.num_messages_in_batch if payload.is_batch(metadata) else 1
        if self._crypto_failure == "DISCARD":
            return Opened(count, [], discarded=True)
        if self._crypto_failure != "CONSUME":
            raise UndeliverableError(
                f"message {event.position} is encrypted: cryptoFailureAction=CONSUME gives it as it is,"
                " DISCARD leaves it out"
            )
        return Opened(count, [_single(event, metadata, body, _encryption_context(metadata))])

    def _piece(self, event: MessageEvent, metadata: pb.MessageMetadata, body: bytes) -> Opened:
        """Takes a piece; returns the large message with its last piece. Raises UndeliverableError."""
        if metadata.total_chunk_msg_size > LARGE_BYTES_MAX:
            raise UndeliverableError(f"message {event.position} has more than {LARGE_BYTES_MAX} bytes")
        uuid, number = metadata.uuid, metadata.chunk_id
        known = self._pieces.get(uuid)
        if known is not None and known.has(number, event.position):
            return Opened(1, [])
        if known is not None and 0 < number < len(known.found):
            # The producer had no receipt for it, and sent it again.
            return Opened(1, [], discarded=True)
        if number == 0:
            self._let_go(uuid)
        if uuid not in self._pieces:
            self._pieces[uuid] = _Pieces([] if known is None else known.positions()[-_EARLIER_MAX:])
            self._pieces_held.size_bytes += len(uuid)
        pieces = self._pieces[uuid]
        if len(pieces.found) != number:
            # Its first pieces went to another consumer or are gone: the rest cannot be used.
            self._let_go(uuid)
            return Opened(1, [], discarded=True)
        pieces.found.append((event.position, body))
        pieces.size_bytes += len(body)
        self._pieces_held.size_bytes += len(body) + _OBJECT_BYTES
        if pieces.size_bytes > LARGE_BYTES_MAX:
            # Its total was the producer's word.
            self._let_go(uuid)
            raise UndeliverableError(
                f"the pieces of message {event.position} have more than {LARGE_BYTES_MAX} bytes"
            )
        if len(pieces.found) < metadata.num_chunks_from_msg:
            if len(self._pieces) > _LARGE_MESSAGES_MAX:
                self._let_go(next(iter(self._pieces)))
            return Opened(1, [])
        self._let_go(uuid)
        plain = self._plain(metadata, b"".join(data for _, data in pieces.found))
        others = tuple(pieces.positions()[:-1])
        whole = _single(event, metadata, plain, pieces=others)
        return Opened(1, [whole])

    def _let_go(self, uuid: str) -> None:
        pieces = self._pieces.pop(uuid, None)
        if pieces is not None:
            self._pieces_held.size_bytes -= len(uuid) + pieces.size_bytes + len(pieces.found) * _OBJECT_BYTES


def _single(
    event: MessageEvent,
    metadata: pb.MessageMetadata,
    body: bytes | memoryview,
    encryption: Mapping[str, object] | None = None,
    pieces: tuple[Position, ...] = (),
) -> Incoming:
    return Incoming(
        event.position,
        -1,
        0,
        body,
        _key(metadata),
        metadata.partition_key_b64_encoded,
        _texts(metadata.properties),
        metadata.publish_time,
        metadata.event_time,
        event.redelivery_count,
        encryption,
        pieces,
    )


def _batch(event: MessageEvent, metadata: pb.MessageMetadata, plain: bytes | memoryview) -> Opened:
    size = metadata.num_messages_in_batch
    words = event.ack_set
    wanted = [index for index in range(size) if words is None or _is_set(words, index)]
    chosen = set(wanted)
    messages = []
    for index, (single, body) in enumerate(payload.split_batch(plain, size)):
        if index in chosen and not single.compacted_out:
            messages.append(
                Incoming(
                    event.position,
                    index,
                    size,
                    # A view keeps the whole batch in memory.
                    body if 2 * len(body) > len(plain) else as_bytes(body),
                    _key(single),
                    single.partition_key_b64_encoded,
                    _texts(single.properties),
                    metadata.publish_time,
                    single.event_time,
                    event.redelivery_count,
                )
            )
    return Opened(len(wanted), messages)


def _key(metadata: pb.MessageMetadata | pb.SingleMessageMetadata) -> str | None:
    return as_text(metadata.partition_key) if metadata.HasField("partition_key") else None


def _texts(pairs: Iterable[pb.KeyValue]) -> dict[str, str]:
    """The pairs as texts. Protobuf returns bytes for values that are not UTF-8, which JSON cannot hold."""
    return {as_text(pair.key): as_text(pair.value) for pair in pairs}


def _is_set(words: tuple[int, ...], index: int) -> bool:
    word = index >> 6
    return word < len(words) and bool(words[word] >> (index & 63) & 1)


def _encryption_context(metadata: pb.MessageMetadata) -> Mapping[str, object]:
    """Source: Pulsar's EncryptionContext as its WebSocket API writes it."""
    return {
        "keys": {
            as_text(each.key): {
                "keyValue": b64encode(each.value).decode(),
                "metadata": _texts(each.metadata),
            }
            for each in metadata.encryption_keys
        },
        "param": b64encode(metadata.encryption_param).decode(),
        "algorithm": as_text(metadata.encryption_algo),
        "compressionType": pb.CompressionType.Name(metadata.compression),
        "uncompressedMessageSize": metadata.uncompressed_size,
        "batchSize": metadata.num_messages_in_batch if payload.is_batch(metadata) else None,
    }

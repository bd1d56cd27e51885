"""The protocol state of one connection, without its socket. Sans-IO.

The session numbers requests, keeps their answers until the caller takes them, collects receipts by producer
and entries by consumer, and answers PING. It knows no socket and no time: the driver passes in the bytes that
it reads, and writes those that the session returns.
"""

from __future__ import annotations

from magnetar.base.ids import ConsumerId, ProducerId, RequestId
from magnetar.client.deliveries import DeliveryReader
from magnetar.wire import commands, features
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import ClientParser, CommandEvent, ReceiptRun
from magnetar.wire.frames import FRAME_HEAD, MESSAGE_BYTES_MAX, encode_command, frame_bytes_max

_Type = pb.BaseCommand.Type

_REPLY_FIELDS = {
    _Type.SUCCESS: "success",
    _Type.ERROR: "error",
    _Type.PRODUCER_SUCCESS: "producer_success",
    _Type.LOOKUP_RESPONSE: "lookupTopicResponse",
    _Type.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    _Type.GET_LAST_MESSAGE_ID_RESPONSE: "getLastMessageIdResponse",
    _Type.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
    _Type.GET_SCHEMA_RESPONSE: "getSchemaResponse",
    _Type.GET_OR_CREATE_SCHEMA_RESPONSE: "getOrCreateSchemaResponse",
    _Type.ACK_RESPONSE: "ackResponse",
    _Type.TC_CLIENT_CONNECT_RESPONSE: "tcClientConnectResponse",
    _Type.NEW_TXN_RESPONSE: "newTxnResponse",
    _Type.ADD_PARTITION_TO_TXN_RESPONSE: "addPartitionToTxnResponse",
    _Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE: "addSubscriptionToTxnResponse",
    _Type.END_TXN_RESPONSE: "endTxnResponse",
}
"""The field of each command that answers a request with its id."""

_CONNECT_REQUEST = 0
"""CONNECT has no id; its answer is kept under this one, which no request uses."""


class ClientSession:
    """The client's state of one connection."""

    def __init__(self, client_version: str) -> None:
        self._client_version = client_version
        self._frame_max = frame_bytes_max(MESSAGE_BYTES_MAX)
        self._parser = ClientParser(self._frame_max)
        self._last_request_id = _CONNECT_REQUEST
        self._replies: dict[int, pb.BaseCommand] = {}
        self._deliveries: dict[int, DeliveryReader] = {}
        self._receipts: dict[int, ReceiptRun] = {}
        self._send_errors: dict[int, pb.CommandSendError] = {}
        self._closed_producers: set[int] = set()
        self._closed_consumers: set[int] = set()
        self.outgoing: list[bytes] = []
        """Frames that the driver must write: answers to PING and to challenges."""
        self.challenged = False
        """Whether the broker waits for credentials; the driver must then call `respond`."""
        self.message_bytes_max = MESSAGE_BYTES_MAX
        """Most bytes of an entry that the broker accepts, from CONNECTED."""
        self.needed = 0
        """After `receive`: size in bytes of the incomplete frame at the end; 0 while it is unknown."""

    def connect(self, *, auth_method: str | None = None, auth_data: bytes = b"", proxy_to: str = "") -> bytes:
        """The frame CONNECT. `proxy_to`: host and port of the broker when the connection is to a proxy."""
        body = pb.CommandConnect(
            client_version=self._client_version,
            protocol_version=features.PROTOCOL_VERSION,
            feature_flags=pb.FeatureFlags(
                supports_broker_entry_metadata=True,
                supports_auth_refresh=True,
                magnetar_takes_broker_entry_metadata=True,
            ),
        )
        if auth_method is not None:
            body.auth_method_name = auth_method
            body.auth_data = auth_data
        if proxy_to:
            body.proxy_to_broker_url = proxy_to
        return encode_command(pb.BaseCommand(type=_Type.CONNECT, connect=body))

    def respond(self, method: str, data: bytes) -> None:
        """Answers a challenge with the present credentials."""
        self.challenged = False
        body = pb.CommandAuthResponse(
            client_version=self._client_version,
            protocol_version=features.PROTOCOL_VERSION,
            response=pb.AuthData(auth_method_name=method, auth_data=data),
        )
        self.outgoing.append(encode_command(pb.BaseCommand(type=_Type.AUTH_RESPONSE, authResponse=body)))

    def next_request_id(self) -> RequestId:
        """An id that no other request of this session has."""
        self._last_request_id += 1
        return RequestId(self._last_request_id)

    def connected(self) -> pb.BaseCommand | None:
        """The answer to CONNECT; it is returned once. None while there is none."""
        return self._replies.pop(_CONNECT_REQUEST, None)

    def reply(self, request_id: RequestId) -> pb.BaseCommand | None:
        """The answer to a request; it is returned once. None while there is none."""
        return self._replies.pop(request_id, None)

    def deliver_to(self, consumer_id: ConsumerId, reader: DeliveryReader) -> None:
        """Passes entries for the consumer to `reader`; entries for unknown consumers are dropped."""
        self._deliveries[consumer_id] = reader

    def receipts(self, producer_id: ProducerId) -> ReceiptRun | None:
        """Receipts of a producer since the last call; None when there are none."""
        return self._receipts.pop(producer_id, None)

    def send_error(self, producer_id: ProducerId) -> pb.CommandSendError | None:
        """The first publish of the producer that was refused; None when none was."""
        return self._send_errors.get(producer_id)

    def is_producer_closed(self, producer_id: ProducerId) -> bool:
        """Whether the broker has closed the producer."""
        return producer_id in self._closed_producers

    def is_consumer_closed(self, consumer_id: ConsumerId) -> bool:
        """Whether the broker has closed the consumer."""
        return consumer_id in self._closed_consumers

    def receive(self, buffer: bytearray | memoryview | bytes, size: int) -> int:
        """Handles every complete frame in `buffer[:size]`; returns the number of bytes handled.

        Raises FrameError for bytes that are not frames and PayloadError for damaged entries.
        """
        with memoryview(buffer) as view:
            data = bytes(view[:size])
        at = 0
        self.needed = 0
        readers = list(self._deliveries.values())
        while size - at >= 8:
            for reader in readers:
                at = reader.take(data, at, size)
            stop = self._next_stop(data, at, size)
            if stop == at:
                break
            events, _ = self._parser.parse(data[at:stop], stop - at)
            for event in events:
                if isinstance(event, CommandEvent):
                    self._command(event)
                elif isinstance(event, ReceiptRun):
                    self._add_receipts(event)
                elif (delivery := self._deliveries.get(event.consumer_id)) is not None:
                    delivery.learn(event)
            at = stop
        if size - at >= 4:
            self.needed = 4 + int.from_bytes(data[at : at + 4], "big")
        return at

    def _next_stop(self, data: bytes, at: int, size: int) -> int:
        """The end of the frames from `data[at]` on that are not messages, or of one message; `at` if none."""
        start = at
        while size - at >= 8:
            total, _ = FRAME_HEAD.unpack_from(data, at)
            if total > self._frame_max:
                return size  # The parser says what is wrong with it.
            end = at + 4 + total
            if end > size:
                break
            if data[at + 8 : at + 11] == b"\x08\x09\x4a":
                return end if at == start else at
            at = end
        return at

    def _add_receipts(self, run: ReceiptRun) -> None:
        known = self._receipts.get(run.producer_id)
        if known is None:
            self._receipts[run.producer_id] = run
        else:
            known.sequence_ids += run.sequence_ids
            known.ledger_ids += run.ledger_ids
            known.entry_ids += run.entry_ids

    def _command(self, event: CommandEvent) -> None:
        command = event.command
        kind = event.type
        field = _REPLY_FIELDS.get(kind)  # type: ignore[call-overload]  # a number off the wire
        if field is not None:
            request_id = getattr(command, field).request_id
            # ERROR before CONNECTED answers CONNECT, with the id -1.
            self._replies[_CONNECT_REQUEST if request_id >= 1 << 63 else request_id] = command
        elif kind == _Type.CONNECTED:
            if command.connected.max_message_size > 0:
                self.message_bytes_max = command.connected.max_message_size
                self._frame_max = frame_bytes_max(max(MESSAGE_BYTES_MAX, self.message_bytes_max))
                self._parser = ClientParser(self._frame_max)
            self._replies[_CONNECT_REQUEST] = command
        elif kind == _Type.PING:
            self.outgoing.append(commands.PONG)
        elif kind == _Type.AUTH_CHALLENGE:
            self.challenged = True
        elif kind == _Type.SEND_ERROR:
            self._send_errors.setdefault(command.send_error.producer_id, command.send_error)
        elif kind == _Type.CLOSE_PRODUCER:
            self._closed_producers.add(command.close_producer.producer_id)
        elif kind == _Type.CLOSE_CONSUMER:
            self._closed_consumers.add(command.close_consumer.consumer_id)
        # Other commands (PONG, active consumer changes, end of topic) need no reaction of this client.

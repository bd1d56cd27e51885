"""Responses to the commands of transactions: success, or an error. Source: Pulsar binary protocol,
CommandNewTxn and following."""

from __future__ import annotations

from typing import Final

from magnetar.base.ids import RequestId
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import TxnBits
from magnetar.wire.frames import FRAME_HEAD, encode_command, varint

_Type = pb.BaseCommand.Type
_Code = pb.ServerError


def _head(kind: int) -> bytes:
    """Type of a response, and tag of its field."""
    return b"\x08" + varint(kind) + varint(kind << 3 | 2)


_BEGUN: Final = _head(_Type.NEW_TXN_RESPONSE)
_PARTITIONS_ADDED: Final = _head(_Type.ADD_PARTITION_TO_TXN_RESPONSE)
_SUBSCRIPTIONS_ADDED: Final = _head(_Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE)
_ENDED: Final = _head(_Type.END_TXN_RESPONSE)


def _success(head: bytes, request_id: RequestId, txn: TxnBits) -> bytes:
    """By hand, as several answers belong to each transaction: request_id 1, least bits 2, most bits 3."""
    body = b"".join((b"\x08", varint(request_id), b"\x10", varint(txn[1]), b"\x18", varint(txn[0])))
    command = b"".join((head, varint(len(body)), body))
    return FRAME_HEAD.pack(len(command) + 4, len(command)) + command


def connected(request_id: RequestId, code: _Code | None = None, text: str | None = None) -> bytes:
    """TC_CLIENT_CONNECT_RESPONSE: this broker holds the coordinator, or does not."""
    body = pb.CommandTcClientConnectResponse(request_id=request_id, error=code, message=text)
    return encode_command(pb.BaseCommand(type=_Type.TC_CLIENT_CONNECT_RESPONSE, tcClientConnectResponse=body))


def begun(request_id: RequestId, txn: TxnBits) -> bytes:
    """NEW_TXN_RESPONSE: a transaction has begun."""
    return _success(_BEGUN, request_id, txn)


def not_begun(request_id: RequestId, coordinator: int, code: _Code, text: str) -> bytes:
    """NEW_TXN_RESPONSE with an error: no transaction has begun."""
    body = pb.CommandNewTxnResponse(
        request_id=request_id, txnid_most_bits=coordinator, error=code, message=text
    )
    return encode_command(pb.BaseCommand(type=_Type.NEW_TXN_RESPONSE, newTxnResponse=body))


def partitions_added(
    request_id: RequestId, txn: TxnBits, code: _Code | None = None, text: str | None = None
) -> bytes:
    """ADD_PARTITION_TO_TXN_RESPONSE: the topics may get messages of the transaction, or may not."""
    if code is None:
        return _success(_PARTITIONS_ADDED, request_id, txn)
    body = pb.CommandAddPartitionToTxnResponse(
        request_id=request_id, txnid_most_bits=txn[0], txnid_least_bits=txn[1], error=code, message=text
    )
    return encode_command(
        pb.BaseCommand(type=_Type.ADD_PARTITION_TO_TXN_RESPONSE, addPartitionToTxnResponse=body)
    )


def subscriptions_added(
    request_id: RequestId, txn: TxnBits, code: _Code | None = None, text: str | None = None
) -> bytes:
    """ADD_SUBSCRIPTION_TO_TXN_RESPONSE: the subscriptions may get acknowledgements of the transaction, or may
    not."""
    if code is None:
        return _success(_SUBSCRIPTIONS_ADDED, request_id, txn)
    body = pb.CommandAddSubscriptionToTxnResponse(
        request_id=request_id, txnid_most_bits=txn[0], txnid_least_bits=txn[1], error=code, message=text
    )
    return encode_command(
        pb.BaseCommand(type=_Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, addSubscriptionToTxnResponse=body)
    )


def ended(request_id: RequestId, txn: TxnBits, code: _Code | None = None, text: str | None = None) -> bytes:
    """END_TXN_RESPONSE: the transaction has ended as asked, or has not."""
    if code is None:
        return _success(_ENDED, request_id, txn)
    body = pb.CommandEndTxnResponse(
        request_id=request_id, txnid_most_bits=txn[0], txnid_least_bits=txn[1], error=code, message=text
    )
    return encode_command(pb.BaseCommand(type=_Type.END_TXN_RESPONSE, endTxnResponse=body))

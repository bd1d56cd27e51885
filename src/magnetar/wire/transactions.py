"""Responses to the commands of transactions: success, or an error. Source: Pulsar binary protocol,
CommandNewTxn and following."""

from __future__ import annotations

from magnetar.base.ids import RequestId
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import TxnBits
from magnetar.wire.frames import encode_command

_Type = pb.BaseCommand.Type
_Code = pb.ServerError


def connected(request_id: RequestId, code: _Code | None = None, text: str | None = None) -> bytes:
    """TC_CLIENT_CONNECT_RESPONSE: this broker holds the coordinator, or does not."""
    body = pb.CommandTcClientConnectResponse(request_id=request_id, error=code, message=text)
    return encode_command(pb.BaseCommand(type=_Type.TC_CLIENT_CONNECT_RESPONSE, tcClientConnectResponse=body))


def begun(request_id: RequestId, txn: TxnBits) -> bytes:
    """NEW_TXN_RESPONSE: a transaction has begun."""
    body = pb.CommandNewTxnResponse(request_id=request_id, txnid_most_bits=txn[0], txnid_least_bits=txn[1])
    return encode_command(pb.BaseCommand(type=_Type.NEW_TXN_RESPONSE, newTxnResponse=body))


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
    body = pb.CommandAddSubscriptionToTxnResponse(
        request_id=request_id, txnid_most_bits=txn[0], txnid_least_bits=txn[1], error=code, message=text
    )
    return encode_command(
        pb.BaseCommand(type=_Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, addSubscriptionToTxnResponse=body)
    )


def ended(request_id: RequestId, txn: TxnBits, code: _Code | None = None, text: str | None = None) -> bytes:
    """END_TXN_RESPONSE: the transaction has ended as asked, or has not."""
    body = pb.CommandEndTxnResponse(
        request_id=request_id, txnid_most_bits=txn[0], txnid_least_bits=txn[1], error=code, message=text
    )
    return encode_command(pb.BaseCommand(type=_Type.END_TXN_RESPONSE, endTxnResponse=body))

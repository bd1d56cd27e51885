"""Answers to the commands of transactions, read back by protobuf."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire import transactions
from magnetar.wire.frames import parse_command

Type = pb.BaseCommand.Type
TXN = (15, (1 << 64) - 1)


@pytest.mark.parametrize(
    ("answer", "kind", "body"),
    [
        (transactions.begun, Type.NEW_TXN_RESPONSE, "newTxnResponse"),
        (transactions.partitions_added, Type.ADD_PARTITION_TO_TXN_RESPONSE, "addPartitionToTxnResponse"),
        (
            transactions.subscriptions_added,
            Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
            "addSubscriptionToTxnResponse",
        ),
        (transactions.ended, Type.END_TXN_RESPONSE, "endTxnResponse"),
    ],
)
def test_success(answer: Callable[..., bytes], kind: int, body: str) -> None:
    frame = answer(300, TXN)
    assert frame[:8] == (len(frame) - 4).to_bytes(4, "big") + (len(frame) - 8).to_bytes(4, "big")
    found, command = parse_command(frame[8:])
    assert found == kind
    said = getattr(command, body)
    assert (said.request_id, said.txnid_most_bits, said.txnid_least_bits) == (300, *TXN)
    assert not said.HasField("error")

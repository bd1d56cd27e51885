"""The id of a message, as functions see it."""

from __future__ import annotations

from typing import NamedTuple

from magnetar.wire import pulsar_pb2 as pb


class InputMessageId(NamedTuple):
    """Position of one message; the methods are those of Pulsar's `MessageId`."""

    ledger: int
    entry: int
    part: int
    """Number of the topic's partition; -1 when it has none."""
    batch: int
    """Place in the batch, from 0; -1 when the entry is not a batch."""

    def ledger_id(self) -> int:
        """Number of the ledger."""
        return self.ledger

    def entry_id(self) -> int:
        """Number of the entry in the ledger."""
        return self.entry

    def partition(self) -> int:
        """Number of the partition; -1: none."""
        return self.part

    def batch_index(self) -> int:
        """Place in the batch; -1: no batch."""
        return self.batch

    def serialize(self) -> bytes:
        """The bytes of a MessageIdData."""
        data = pb.MessageIdData(ledgerId=self.ledger, entryId=self.entry)
        if self.part >= 0:
            data.partition = self.part
        if self.batch >= 0:
            data.batch_index = self.batch
        return data.SerializeToString()

    def __str__(self) -> str:
        return f"({self.ledger},{self.entry},{self.part},{self.batch})"

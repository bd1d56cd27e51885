"""What a client has seen of the broker, however it is connected."""

from __future__ import annotations

from typing import Any

from magnetar.base.ids import Position
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import MessageEvent, ReceiptRun

Type = pb.BaseCommand.Type
FIELD_OF_TYPE = {number: pb.BaseCommand.DESCRIPTOR.fields_by_number[number].name for number in Type.values()}
"""Name of the field that holds a command of each type."""


class Seen:
    """Commands, receipts and messages, in the order in which they came."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        """Everything the broker sent."""

    @property
    def receipts_of_all(self) -> list[tuple[int, int, Position]]:
        """Producer id, sequence id and position of all receipts, in order."""
        return [
            (run.producer_id, sequence_id, Position(ledger_id, entry_id))
            for run in self.seen
            if isinstance(run, ReceiptRun)
            for sequence_id, ledger_id, entry_id in zip(
                run.sequence_ids, run.ledger_ids, run.entry_ids, strict=True
            )
        ]

    @property
    def messages(self) -> list[MessageEvent]:
        """All messages, in order."""
        return [seen for seen in self.seen if isinstance(seen, MessageEvent)]

    @property
    def bodies(self) -> list[bytes]:
        """Payloads of all messages, in order."""
        return [message.entry[message.payload_at :] for message in self.messages]

    def commands(self, kind: int) -> list[Any]:
        """Bodies of all commands of this type, in order."""
        return [
            getattr(seen, FIELD_OF_TYPE[kind])
            for seen in self.seen
            if isinstance(seen, pb.BaseCommand) and seen.type == kind
        ]

    def find_answer(self, request_id: int) -> Any:
        """The body of the reply to this request if it has come; None when it has not."""
        for seen in self.seen:
            if isinstance(seen, pb.BaseCommand):
                body = getattr(seen, FIELD_OF_TYPE[seen.type])
                if getattr(body, "request_id", None) == request_id:
                    return body
        return None

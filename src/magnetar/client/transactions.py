"""A client of a transaction coordinator: begins transactions, adds topics and subscriptions, ends them.
Blocking."""

from __future__ import annotations

from typing import Any, Final

from magnetar.base.closing import Closing
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.errors import RefusedError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import TxnBits

_Type = pb.BaseCommand.Type
_ASSIGN: Final = "persistent://pulsar/system/transaction_coordinator_assign-partition-{}"
"""Topic whose partitions are the coordinators, by which clients look them up. Source: Pulsar's
`SystemTopicNames`."""


class Coordinator(Closing):
    """One coordinator, with its own connection."""

    def __init__(self, client: Client, number: int = 0) -> None:
        """Connects. Raises RefusedError when the broker does not offer transactions, UnreachableError."""
        self._number = number
        self._connection = client.connect_to(TopicName.parse(_ASSIGN.format(number)))
        try:
            self._ask("tcClientConnectRequest", "tcClientConnectResponse", tc_id=number)
        except BaseException:
            self._connection.close()
            raise

    def begin(self, ttl_s: float) -> TxnBits:
        """Begins a transaction; the broker aborts it unless it is ended within `ttl_s` seconds."""
        answer = self._ask(
            "newTxn", "newTxnResponse", tc_id=self._number, txn_ttl_seconds=round(1000 * ttl_s)
        )
        return answer.txnid_most_bits, answer.txnid_least_bits

    def add_topic(self, txn: TxnBits, topic: TopicName) -> None:
        """Adds a topic to which messages of the transaction may be published."""
        self._ask("addPartitionToTxn", "addPartitionToTxnResponse", txn, partitions=[str(topic)])

    def add_subscription(self, txn: TxnBits, topic: TopicName, subscription: str) -> None:
        """Adds a subscription in which the transaction may acknowledge messages."""
        named = [pb.Subscription(topic=str(topic), subscription=subscription)]
        self._ask("addSubscriptionToTxn", "addSubscriptionToTxnResponse", txn, subscription=named)

    def end(self, txn: TxnBits, *, commit: bool) -> None:
        """Commits or aborts the transaction, durably on return. The call may be repeated, also after an
        error.

        Raises RefusedError with InvalidTxnStatus when it has ended the other way.
        """
        self._ask("endTxn", "endTxnResponse", txn, txn_action=pb.COMMIT if commit else pb.ABORT)

    def _ask(self, field: str, answer: str, txn: TxnBits | None = None, **fields: object) -> Any:
        """Sends a request and returns the body of its answer. Raises RefusedError, UnreachableError,
        RequestTimeoutError."""
        request_id = self._connection.session.next_request_id()
        if txn is not None:
            fields |= {"txnid_most_bits": txn[0], "txnid_least_bits": txn[1]}
        command = pb.BaseCommand(type=_TYPES[field])
        body: Any = getattr(command, field)
        body.MergeFrom(type(body)(request_id=request_id, **fields))
        what = f"{_Type.Name(_TYPES[field])} of coordinator {self._number}"
        found: Any = getattr(self._connection.call(command, request_id, what), answer)
        if found.HasField("error"):
            error = RefusedError(what, found.error, found.message)
            # The coordinator is being moved, or its broker cannot store anything now.
            error.retriable = error.retriable or found.error == pb.ServerError.TransactionCoordinatorNotFound
            raise error
        return found

    def close(self) -> None:
        """Ends the connection. Open transactions stay open until their time is over."""
        self._connection.close()


_TYPES: Final = {
    "tcClientConnectRequest": _Type.TC_CLIENT_CONNECT_REQUEST,
    "newTxn": _Type.NEW_TXN,
    "addPartitionToTxn": _Type.ADD_PARTITION_TO_TXN,
    "addSubscriptionToTxn": _Type.ADD_SUBSCRIPTION_TO_TXN,
    "endTxn": _Type.END_TXN,
}

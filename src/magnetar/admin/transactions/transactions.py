"""`/admin/v3/transactions`: coordinators, transactions, and their part in topics and subscriptions."""

from __future__ import annotations

from typing import Final

from magnetar.admin.brokers.brokers import broker_port
from magnetar.admin.calls.call import AUTHORITATIVE, Call, Document, Route, natural
from magnetar.admin.calls.errors import BadRequestError, NotImplementedHereError, ServedElsewhereError
from magnetar.admin.subscriptions.subscriptions import find
from magnetar.admin.topics.topics import loaded
from magnetar.admin.transactions import transaction_documents as documents
from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.broker.errors import (
    NotAllowedError,
    TransactionNotFoundError,
    TransactionStateError,
)
from magnetar.broker.topic.topic import Topic
from magnetar.broker.transactions.coordinator import ANYBODY
from magnetar.broker.transactions.discovery import ASSIGN
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.open_list import begun_elsewhere, here, open_for
from magnetar.broker.transactions.transaction import Transaction
from magnetar.broker.transactions.transactions import Transactions

_R: Final = "/admin/v3/transactions"
_T: Final = "{tenant}/{namespace}/{topic}"
_ID: Final = "{most}/{least}"
_COORDINATORS_MAX: Final = 1_000


def _transactions(call: Call) -> Transactions:
    transactions = call.broker.transactions
    if not transactions.enabled:
        raise NotImplementedHereError("this broker does not offer transactions: they are off")
    return transactions


async def _served_here(call: Call, name: TopicName) -> None:
    """Raises ServedElsewhereError when another broker serves the topic, or the coordinator of that name."""
    if call.broker.owners is not None:
        place = await call.broker.owners.locate(name, authoritative=call.flag(AUTHORITATIVE))
        if place.urls is not None:
            raise ServedElsewhereError(place)


async def _coordinator_here(call: Call, number: int) -> None:
    """The same for a coordinator, which is read on return. Raises TransactionNotFoundError."""
    transactions = _transactions(call)
    if call.broker.owners is not None:
        if number >= await transactions.discovery.count():
            raise TransactionNotFoundError(f"Transaction coordinator {number} not found")
        await _served_here(call, ASSIGN.with_partition(number))
        await transactions.connect(number)


async def _id(call: Call) -> TxnId:
    """The transaction that the path names; its coordinator is here."""
    found = TxnId(call.integer("most"), call.integer("least"))
    await _coordinator_here(call, found.coordinator)
    return found


async def _found(call: Call) -> Transaction:
    transactions, id_ = _transactions(call), await _id(call)
    coordinator = transactions.coordinators.get(id_.coordinator)
    txn = None if coordinator is None else coordinator.transactions.get(id_.sequence)
    if coordinator is not None and (unknown := coordinator.unknown.get(id_.sequence)) is not None:
        raise TransactionNotFoundError(unknown.reason)
    if txn is None or txn.state is not TxnState.OPEN:
        raise TransactionNotFoundError(f"Transaction {id_} is not open, or was never begun")
    return txn


async def coordinators(call: Call) -> object:
    """All coordinators with their brokers."""
    count = await _transactions(call).discovery.count()
    host = call.broker.config.advertised_host or call.host
    here = call.broker.listeners.addresses(host, await broker_port(call))
    found = []
    for number in range(count):
        at = here
        if call.broker.owners is not None:
            place = await call.broker.owners.locate(ASSIGN.with_partition(number), authoritative=False)
            at = here if place.urls is None else place.urls.addresses
        found.append({"id": number, "brokerServiceUrl": at.plain or at.tls})
    return found


async def coordinator_stats(call: Call) -> object:
    """Statistics of one coordinator, or of all by number."""
    transactions = _transactions(call)
    count = await transactions.discovery.count()
    wanted = call.query.get("coordinatorId")
    if wanted is None:
        return {str(number): await _stats(call, number) for number in range(count)}
    number = natural(wanted, "coordinatorId")
    if number >= count:
        raise TransactionNotFoundError(f"Transaction coordinator {number} not found")
    await _coordinator_here(call, number)
    return documents.coordinator_stats(number, transactions.coordinators.get(number))


async def _stats(call: Call, number: int) -> Document:
    coordinator = here(call.broker, call.broker.transactions.coordinators, number)
    stats = documents.coordinator_stats(number, coordinator)
    if coordinator is None and call.broker.owners is not None:
        stats["leastSigBits"], stats["ongoingTxnSize"] = await begun_elsewhere(call.broker, number)
    return stats


async def transaction(call: Call) -> object:
    """One open transaction."""
    return _metadata(call, await _found(call))


def _metadata(call: Call, txn: Transaction) -> Document:
    # With several brokers topics count their messages, and do not tell coordinators.
    return documents.metadata(_transactions(call), txn, counted=call.broker.owners is None)


async def slow(call: Call) -> object:
    """Transactions that have been open for a number of milliseconds, by id, oldest first: of one coordinator,
    or of all of the cluster."""
    transactions = _transactions(call)
    least_ms = call.integer("milliseconds")
    wanted = call.query.get("coordinatorId")
    if wanted is not None:
        await _coordinator_here(call, natural(wanted, "coordinatorId"))
        numbers = [natural(wanted, "coordinatorId")]
    else:
        numbers = list(range(await transactions.discovery.count()))
    found = await open_for(call.broker, transactions.coordinators, numbers, least_ms)
    return {str(txn.id): _metadata(call, txn) for txn in found}


async def abort(call: Call) -> None:
    """Aborts an open transaction. Its client gets an error when it next uses the transaction.

    A transaction with a damaged value is given up: its topics are found first. If it was committed, and its
    part in a topic is damaged, what it acknowledged there comes again.
    """
    transactions, id_ = _transactions(call), await _id(call)
    is_given_up = await transactions.take_up(id_)
    try:
        await transactions.end(id_, TxnState.ABORTED, ANYBODY, reason="an operator aborted it")
    except TransactionStateError:
        if not is_given_up:
            raise


async def scale(call: Call) -> None:
    """Sets the number of coordinators, which can only grow."""
    transactions = _transactions(call)
    count = call.json()
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= _COORDINATORS_MAX:
        raise BadRequestError(f"the body is a number of coordinators, at most {_COORDINATORS_MAX}")
    if count <= await transactions.discovery.count():
        raise NotAllowedError("Number of transaction coordinators must be more than the current ones")
    await transactions.discovery.grow(count)


async def _topic(call: Call) -> Topic:
    _transactions(call)
    await _served_here(call, call.topic())
    return await loaded(call.broker, call.topic())


async def buffer_stats(call: Call) -> object:
    """Transactions of a topic: the last position for readers, and the transaction that holds them back."""
    return documents.buffer_stats(await _topic(call))


async def in_buffer(call: Call) -> object:
    """Position of the first message of a transaction in a topic."""
    topic = await _topic(call)
    return documents.in_buffer(topic, TxnId(call.integer("most"), call.integer("least")))


async def pending_ack_stats(call: Call) -> object:
    """Transactions of a subscription."""
    return documents.pending_ack_stats(find(await _topic(call), call.params["subscription"]))


async def in_pending_ack(call: Call) -> object:
    """Acknowledgements of a transaction in a subscription."""
    id_ = TxnId(call.integer("most"), call.integer("least"))
    return documents.in_pending_ack(find(await _topic(call), call.params["subscription"]), id_)


async def position(call: Call) -> object:
    """Whether a message is acknowledged by an open transaction in a subscription."""
    subscription = find(await _topic(call), call.params["subscription"])
    at = Position(LedgerId(call.integer("ledger")), call.integer("entry"))
    index = call.query.get("batchIndex")
    number = None if index is None else natural(index, "batchIndex")
    return {"state": documents.position_state(subscription, at, number)}


async def no_log(call: Call) -> object:
    """Refused: transactions are stored in the metadata, without logs."""
    _transactions(call)
    raise NotAllowedError(
        "this broker keeps transactions in its metadata store, without logs", remedy="see coordinatorStats"
    )


ROUTES: list[Route] = [
    ("GET", f"{_R}/coordinators", coordinators),
    ("GET", f"{_R}/coordinatorStats", coordinator_stats),
    ("GET", f"{_R}/transactionMetadata/{_ID}", transaction),
    ("GET", f"{_R}/slowTransactions/{{milliseconds}}", slow),
    ("POST", f"{_R}/abortTransaction/{_ID}", abort),
    ("POST", f"{_R}/transactionCoordinator/replicas", scale),
    ("GET", f"{_R}/transactionBufferStats/{_T}", buffer_stats),
    ("GET", f"{_R}/transactionInBufferStats/{_T}/{_ID}", in_buffer),
    ("GET", f"{_R}/pendingAckStats/{_T}/{{subscription}}", pending_ack_stats),
    ("GET", f"{_R}/transactionInPendingAckStats/{_T}/{{subscription}}/{_ID}", in_pending_ack),
    ("GET", f"{_R}/positionStatsInPendingAck/{_T}/{{subscription}}/{{ledger}}/{{entry}}", position),
    ("GET", f"{_R}/coordinatorInternalStats/{{number}}", no_log),
    ("GET", f"{_R}/pendingAckInternalStats/{_T}/{{subscription}}", no_log),
    ("GET", f"{_R}/transactionBufferInternalStats/{_T}", no_log),
]

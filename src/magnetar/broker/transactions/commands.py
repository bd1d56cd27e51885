"""The commands of transactions, and SEND and ACK within one."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from magnetar.auth.permissions import Action
from magnetar.base.errors import MetadataError
from magnetar.base.names import TopicName
from magnetar.broker.errors import CoordinatorNotFoundError, NotAllowedError, RefusedError
from magnetar.broker.handlers import permission
from magnetar.broker.topic.topic import Topic
from magnetar.broker.transactions.coordinator import Who
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.managedlog.log_state import LogState
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire import transactions as replies

if TYPE_CHECKING:
    from magnetar.broker.ports import Handler, SessionPort
    from magnetar.broker.subscription.any_subscription import AttachedConsumer
    from magnetar.broker.topic.any_topic import AnyTopic
    from magnetar.broker.topic.producer import Producer
    from magnetar.wire.events import AckEvent, SendRun, TxnBits

Command = pb.BaseCommand


def _who(session: SessionPort) -> Who:
    guard, identity = session.broker.guard, session.identity
    if guard is None or identity is None:
        return Who("")
    return Who(identity.role, superuser=guard.authorizes and guard.is_superuser(identity))


def _check_stored(topic: TopicName) -> None:
    if not topic.persistent:
        raise NotAllowedError("transactions are for persistent topics only")


async def _told(work: Coroutine[object, object, object]) -> Any:
    """When the metadata store fails, clients must repeat the request, which they do on this code."""
    try:
        return await work
    except MetadataError as error:
        raise CoordinatorNotFoundError(f"not now: {error}") from error


def connect(session: SessionPort, command: Command) -> None:
    request = command.tcClientConnectRequest

    async def work() -> None:
        await _told(session.broker.transactions.connect(request.tc_id))
        session.reply(replies.connected(request.request_id))

    session.requests.run(
        request, work(), lambda code, text: replies.connected(request.request_id, code, text)
    )


def begin(session: SessionPort, command: Command) -> None:
    request = command.newTxn

    async def work() -> None:
        begun = await _told(
            session.broker.transactions.begin(request.tc_id, _who(session).role, request.txn_ttl_seconds)
        )
        session.reply(replies.begun(request.request_id, begun))

    session.requests.run(
        request,
        work(),
        lambda code, text: replies.not_begun(request.request_id, request.tc_id, code, text),
    )


def add_partitions(session: SessionPort, command: Command) -> None:
    request = command.addPartitionToTxn
    txn: TxnBits = request.txnid_most_bits, request.txnid_least_bits

    async def work() -> None:
        names = [(named, TopicName.parse(named)) for named in request.partitions]
        for _, topic in names:
            _check_stored(topic)
            await permission.allow(session, Action.PRODUCE, topic)
        await _told(session.broker.transactions.add_partitions(txn, names, _who(session)))
        session.reply(replies.partitions_added(request.request_id, txn))

    session.requests.run(
        request, work(), lambda code, text: replies.partitions_added(request.request_id, txn, code, text)
    )


def add_subscriptions(session: SessionPort, command: Command) -> None:
    request = command.addSubscriptionToTxn
    txn: TxnBits = request.txnid_most_bits, request.txnid_least_bits

    async def work() -> None:
        wanted = request.subscription
        names = [(each.topic, TopicName.parse(each.topic), each.subscription) for each in wanted]
        for _, topic, subscription in names:
            _check_stored(topic)
            await permission.allow(session, Action.CONSUME, topic, subscription)
        await _told(session.broker.transactions.add_subscriptions(txn, names, _who(session)))
        session.reply(replies.subscriptions_added(request.request_id, txn))

    session.requests.run(
        request, work(), lambda code, text: replies.subscriptions_added(request.request_id, txn, code, text)
    )


def end(session: SessionPort, command: Command) -> None:
    request = command.endTxn
    txn: TxnBits = request.txnid_most_bits, request.txnid_least_bits
    wanted = TxnState.COMMITTED if request.txn_action == pb.COMMIT else TxnState.ABORTED

    async def work() -> None:
        await _told(session.broker.transactions.end(TxnId(*txn), wanted, _who(session)))
        session.reply(replies.ended(request.request_id, txn))

    session.requests.run(
        request, work(), lambda code, text: replies.ended(request.request_id, txn, code, text)
    )


def publish(session: SessionPort, topic: AnyTopic, producer: Producer, run: SendRun) -> None:
    """SENDs of a transaction: taken as others are, or refused in their places among the receipts."""
    if topic.closed:
        missed(session, (str(topic.name), producer.name), run)
    elif producer.ready:
        refusal: RefusedError | None = NotAllowedError("transactions are for persistent topics only")
        if isinstance(topic, Topic):
            transactions, who = session.broker.transactions, _who(session)
            if transactions.hold(topic, producer, run, who):
                return
            refusal = transactions.admit(topic, producer.name, run, who)
        if refusal is not None:
            topic.refuse(producer, run, refusal)
            return
    topic.publish(producer, run)


def comes_back(topic: AnyTopic, producer: Producer) -> tuple[str, str] | None:
    """Names of the topic and of a producer that is being closed, where its client is to open it anew and send
    again what was dropped: the topic is unloaded, failed or terminated, and in the last case the client is
    told so then. None: its client closed it, or another one fenced it."""
    takes_nothing = topic.closed or (isinstance(topic, Topic) and topic.log.state is not LogState.OPEN)
    return (str(topic.name), producer.name) if takes_nothing else None


def missed(session: SessionPort, producer: tuple[str, str] | None, run: SendRun) -> None:
    """SENDs of a transaction were dropped as their producer is closed; `producer`: see `comes_back`."""
    if producer is not None:
        session.broker.transactions.missed(*producer, run, _who(session))


def acknowledge(session: SessionPort, consumer: AttachedConsumer, event: AckEvent) -> None:
    """An ACK of a transaction. Raises RefusedError."""
    request_id = event.request_id

    def answer(error: BaseException | None) -> None:
        session.ack_response(consumer, request_id, error)

    session.broker.transactions.acknowledge(consumer, event, _who(session), answer)


HANDLERS: dict[int, Handler] = {
    pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST: connect,
    pb.BaseCommand.NEW_TXN: begin,
    pb.BaseCommand.ADD_PARTITION_TO_TXN: add_partitions,
    pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN: add_subscriptions,
    pb.BaseCommand.END_TXN: end,
}

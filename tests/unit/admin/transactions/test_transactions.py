"""`/admin/v3/transactions`, over a broker on fakes."""

from __future__ import annotations

from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.broker.service import BrokerConfig
from magnetar.broker.transactions.coordinator import Who
from magnetar.broker.transactions.ids import TxnId, TxnState
from support.admin_api import AdminApi, with_api

R = "/admin/v3/transactions"
TOPIC = "persistent://public/default/t"


async def begun(api: AdminApi, ttl_ms: int = 60_000) -> tuple[int, int]:
    transactions = api.broker.transactions
    txn = await transactions.begin(2, "", ttl_ms)
    await transactions.add_partitions(txn, [("t", TopicName.parse("t"))], Who(""))
    await transactions.add_subscriptions(txn, [("t", TopicName.parse("t"), "s")], Who(""))
    return txn


def test_a_transaction_is_described_and_aborted() -> None:
    async def story(api: AdminApi) -> None:
        await api.topic(TOPIC)
        most, least = await begun(api)
        found = (await api.call("GET", f"{R}/transactionMetadata/{most}/{least}")).json
        assert found["status"] == "OPEN"
        assert found["txnId"] == f"({most},{least})"
        assert found["timeoutAt"] - found["openTimestamp"] == 60_000
        # By the name that the client gave.
        assert found["producedPartitions"] == {"t": {"startPosition": None, "aborted": False}}
        assert found["ackedPartitions"] == {"t": {"s": {"cumulativeAckPosition": None}}}
        slow = (await api.call("GET", f"{R}/slowTransactions/0?coordinatorId=2")).json
        assert list(slow) == [f"({most},{least})"]
        assert (await api.call("GET", f"{R}/slowTransactions/1000")).json == {}
        assert (await api.call("POST", f"{R}/abortTransaction/{most}/{least}")).status == 204
        assert (await api.refused("GET", f"{R}/transactionMetadata/{most}/{least}"))[0] == 404
        assert api.broker.transactions.coordinators[2].outcomes is not None
        assert (await api.call("POST", f"{R}/abortTransaction/{most}/{least}")).status == 204
        assert (await api.refused("POST", f"{R}/abortTransaction/2/999"))[0] == 404

    with_api(story, config=BrokerConfig(transactions=True))


def test_coordinators_are_told_of_and_become_more() -> None:
    async def story(api: AdminApi) -> None:
        assert len((await api.call("GET", f"{R}/coordinators")).json) == 16
        await begun(api)
        stats = (await api.call("GET", f"{R}/coordinatorStats")).json
        assert len(stats) == 16
        assert stats["2"]["ongoingTxnSize"] == 1
        assert stats["3"]["leastSigBits"] == -1
        assert (await api.call("GET", f"{R}/coordinatorStats?coordinatorId=2")).json == stats["2"]
        assert (await api.refused("POST", f"{R}/transactionCoordinator/replicas", 16))[0] == 405
        assert (await api.call("POST", f"{R}/transactionCoordinator/replicas", 20)).status == 204
        assert len((await api.call("GET", f"{R}/coordinators")).json) == 20
        assert (await api.refused("POST", f"{R}/transactionCoordinator/replicas", 19))[0] == 405
        assert (await api.refused("GET", f"{R}/coordinatorInternalStats/0"))[0] == 405
        path = "/admin/v2/persistent/pulsar/system/transaction_coordinator_assign/partitions"
        assert (await api.call("GET", path)).json["partitions"] == 20
        one = path.replace("assign/", "assign-partition-3/")
        assert (await api.call("GET", one)).json["partitions"] == 0

    with_api(story, config=BrokerConfig(transactions=True))


def test_clients_that_look_up_over_http_find_the_coordinators() -> None:
    """The call that ends a topic answered in place of the one that tells of partitions."""

    async def story(api: AdminApi) -> None:
        path = "/admin/v2/persistent/pulsar/system/transaction_coordinator_assign"
        found = (await api.call("GET", f"{path}/partitions?checkAllowAutoCreation=true")).json
        assert found == {"partitions": 16, "deleted": False}
        assert (await api.refused("POST", f"{path}/terminate/partitions"))[0] == 405

    with_api(story, config=BrokerConfig(transactions=True))


def test_topics_and_subscriptions_are_told_of() -> None:
    async def story(api: AdminApi) -> None:
        topic = await api.topic(TOPIC)
        await topic.subscription("s", initial_earliest=True, start=None, properties=None)
        most, least = await begun(api)
        buffer = (await api.call("GET", f"{R}/transactionBufferStats/public/default/t")).json
        assert (buffer["ongoingTxnSize"], buffer["heldBackBy"]) == (0, None)
        pending = (await api.call("GET", f"{R}/pendingAckStats/public/default/t/s")).json
        assert pending["ongoingTxnSize"] == 0
        found = await api.call("GET", f"{R}/positionStatsInPendingAck/public/default/t/s/99/0")
        assert found.json == {"state": "NotInPendingAck"}
        found = await api.call("GET", f"{R}/transactionInPendingAckStats/public/default/t/s/{most}/{least}")
        assert found.json == {"cumulativeAckPosition": None}
        found = await api.call("GET", f"{R}/transactionInBufferStats/public/default/t/{most}/{least}")
        assert found.json == {"startPosition": None, "aborted": False}
        assert (await api.refused("GET", f"{R}/pendingAckStats/public/default/t/none"))[0] == 404
        await api.broker.transactions.end(
            api.broker.transactions.coordinators[most].transactions[least].id, TxnState.COMMITTED, Who("")
        )

    with_api(story, config=BrokerConfig(transactions=True))


def test_where_they_are_off_they_are_not_offered() -> None:
    async def story(api: AdminApi) -> None:
        for path in ("coordinatorStats", "coordinatorInternalStats/0", "slowTransactions/0"):
            assert (await api.refused("GET", f"{R}/{path}"))[0] == 501

    with_api(story)


def test_metrics_tell_of_the_transactions_of_a_topic() -> None:
    async def story(api: AdminApi) -> None:
        topic = await api.topic(TOPIC)
        scraped = (await api.call("GET", "/metrics")).body.decode()
        assert "pulsar_txn_tb" not in scraped, "it has had none"
        part = api.broker.transactions._resolving.part_of(topic)
        part.spans.appended(TxnId(0, 1), Position(LedgerId(0), 0), 1)
        part.committed, part.aborted = 3, 2
        scraped = (await api.call("GET", "/metrics")).body.decode()
        labelled = f'{{cluster="standalone",namespace="public/default",topic="{TOPIC}"}}'
        for name, value in (("active", 1), ("committed", 3), ("aborted", 2)):
            assert f"pulsar_txn_tb_{name}_total{labelled} {value}" in scraped

    with_api(story, config=BrokerConfig(transactions=True))

"""Messages of open and aborted transactions, with their state, for people."""

from __future__ import annotations

from typing import Any

from magnetar.base.names import TopicName
from magnetar.broker.service import BrokerConfig
from magnetar.broker.transactions.coordinator import Who
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry
from support.admin_api import AdminApi, T, with_api

ON = BrokerConfig(transactions=True)
TOPIC = TopicName.parse("t")


async def written(api: AdminApi, payload: bytes) -> TxnId:
    """An open transaction with a message."""
    transactions = api.broker.transactions
    txn = await transactions.begin(0, "", 60_000)
    await transactions.add_partitions(txn, [("t", TOPIC)], Who(""))
    topic = await api.topic("t")
    assert topic.transactions is not None
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    topic.transactions.append(txn, [build_entry(metadata, payload)], None)
    await topic.transactions.settled(txn)
    return txn


async def world(api: AdminApi) -> TxnId:
    """A plain message, an aborted one, a committed one, an open one, a plain one."""
    await api.publish("t", b"plain")
    transactions = api.broker.transactions
    for payload, state in ((b"lost", TxnState.ABORTED), (b"kept", TxnState.COMMITTED)):
        await transactions.end(await written(api, payload), state, Who(""))
    txn = await written(api, b"open")
    await api.publish("t", b"behind")
    return txn


def test_all_entries_are_shown_with_the_state_of_their_transactions() -> None:
    pages: dict[str, Any] = {}

    async def story(api: AdminApi) -> None:
        await world(api)
        pages["first"] = await api.get(f"{T}/t/allEntries")
        last = pages["first"][-1]
        assert (
            await api.get(f"{T}/t/allEntries?ledger={last['ledgerId']}&entry=1&limit=2")
            == pages["first"][1:3]
        )
        behind = f"ledger={last['ledgerId']}&entry={last['entryId'] + 1}"
        assert await api.get(f"{T}/t/allEntries?{behind}") == []

    with_api(story, config=ON)
    states = [(each["transaction"], each["transactionState"]) for each in pages["first"]]
    plain = (None, None)
    assert states == [plain, ("(0,0)", "aborted"), ("(0,1)", "committed"), ("(0,2)", "open"), plain]


def test_internal_stats_tell_how_far_readers_get() -> None:
    async def story(api: AdminApi) -> None:
        await api.publish("t", b"plain")
        assert "maxReadPosition" not in await api.get(f"{T}/t/internalStats")
        await api.broker.transactions.end(await written(api, b"lost"), TxnState.ABORTED, Who(""))
        txn = await written(api, b"open")
        await api.publish("t", b"behind")
        stats = await api.get(f"{T}/t/internalStats")
        ledger = stats["ledgers"][0]["ledgerId"]
        assert stats["maxReadPosition"] == f"{ledger}:1"
        assert stats["lastConfirmedEntry"] == f"{ledger}:3"
        await api.broker.transactions.end(txn, TxnState.COMMITTED, Who(""))
        stats = await api.get(f"{T}/t/internalStats")
        assert stats["maxReadPosition"] == stats["lastConfirmedEntry"]

    with_api(story, config=ON)

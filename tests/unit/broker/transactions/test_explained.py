"""Why nothing is delivered: the transaction that holds a topic back is named."""

from __future__ import annotations

from magnetar.broker.config import BrokerConfig
from magnetar.broker.explain.reasons import DiagnosedState, diagnose
from magnetar.broker.explain.subscription_view import View
from support.sessions import World, in_world, send
from support.transactions import TxnPeer


def test_the_transaction_that_holds_a_topic_back_is_named() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        await peer.consumer(permits=100)
        client = TxnPeer(peer)
        (topic,) = world.broker.topics.values()

        def view() -> View:
            return topic.subscriptions["s"].view()

        txn = await client.begin()
        await client.add_partitions(txn)
        peer.send(send(1, 0))
        await world.until(lambda: len(peer.messages) == 1, "the message before")
        await client.publish(txn, 1, b"held")
        peer.send(send(1, 2))
        await world.until(lambda: view().held == 2, "both are stored")
        found = diagnose(view())
        assert found.state is DiagnosedState.HELD
        assert found.sentence == (
            "transaction (0,0) is open and holds back 2 entries, its own and those behind; "
            "`magnetar transactions describe 0 0` shows it, `magnetar transactions abort 0 0` ends it"
        )
        await client.end(txn, commit=True)
        await world.until(lambda: len(peer.messages) == 3, "all messages")
        assert diagnose(view()).state is DiagnosedState.ALL_SENT
        assert view().held_by == ""

    in_world(story, BrokerConfig(transactions=True))

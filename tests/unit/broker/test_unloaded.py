"""What is known of topics that nobody has loaded."""

from __future__ import annotations

from magnetar.admin.metrics import registry_for
from magnetar.base.names import TopicName
from magnetar.managedlog.peeking import peek
from support.sessions import TOPIC, World, in_world, send

NAME = TopicName.parse(TOPIC)


async def ten_messages(world: World, acknowledged: int) -> None:
    """A subscription has acknowledged some of ten messages; its clients have left."""
    peer = world.peer()
    await peer.consumer(permits=10)
    await peer.producer()
    for number in range(10):
        peer.send(send(1, number))
    await world.until(lambda: len(peer.messages) == 10, "ten messages")
    positions = [position for _, _, position in peer.receipts]
    peer.ack(1, *positions[:acknowledged])
    await world.settle()
    peer.session.lost()


def shown(world: World) -> dict[str, float]:
    text = "".join(registry_for(world.broker).scrape())
    rows = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {series: float(value) for series, _, value in rows}


def test_backlog_and_lag_are_exact_after_a_clean_unload_and_nothing_is_loaded() -> None:
    async def story(world: World) -> None:
        await ten_messages(world, acknowledged=4)
        loaded = shown(world)
        await world.broker.unload(NAME)
        world.clock.advance(5_000)
        await world.broker.unloaded.round()
        assert world.broker.topics == {}
        assert world.logs.opened(NAME.log_name) is None
        labels = f'{{cluster="standalone",namespace="public/default",topic="{TOPIC}"'
        found = shown(world)
        assert found[f'pulsar_subscription_back_log{labels},subscription="s"}}'] == 6
        assert found[f'magnetar_subscription_lag_messages{labels},subscription="s"}}'] == 6
        assert found[f'magnetar_subscription_lag_seconds{labels},subscription="s"}}'] >= 5
        for name in ("pulsar_msg_backlog", "pulsar_storage_size"):
            assert found[f"{name}{labels}}}"] == loaded[f"{name}{labels}}}"]
        namespace = '{cluster="standalone",namespace="public/default"}'
        assert found[f"magnetar_unloaded_topics{namespace}"] == 1
        assert found[f"magnetar_unloaded_backlog_entries{namespace}"] == 6
        assert found[f"magnetar_unloaded_inexact_topics{namespace}"] == 0

    in_world(story)


def test_a_loaded_topic_is_shown_once() -> None:
    async def story(world: World) -> None:
        await ten_messages(world, acknowledged=0)
        await world.broker.unload(NAME)
        await world.broker.unloaded.round()
        await world.topic()
        text = "".join(registry_for(world.broker).scrape())
        assert text.count("\npulsar_msg_backlog{") == 1
        await world.broker.unloaded.round()
        assert world.broker.unloaded.seen.topics == {}

    in_world(story)


def test_what_a_crash_left_is_said_to_be_inexact() -> None:
    async def story(world: World) -> None:
        await ten_messages(world, acknowledged=4)
        # As a process that begins now would find it.
        found = await peek(world.store, NAME.log_name, frozenset())
        assert found is not None
        assert not found.exact
        assert not any(cursor.exact for cursor in found.cursors)
        assert await peek(world.store, "public/default/persistent/none", frozenset()) is None

    in_world(story)


def test_acknowledged_entries_beyond_the_mark_are_not_backlog() -> None:
    async def story(world: World) -> None:
        await ten_messages(world, acknowledged=0)
        topic = await world.topic()
        cursor = topic.subscriptions["s"].cursor
        first = topic.log.first_position
        cursor.ack([first._replace(entry_id=number) for number in (3, 5, 6)])
        await world.broker.unload(NAME)
        found = await peek(world.store, NAME.log_name, frozenset())
        assert found is not None
        assert [each.backlog_entries for each in found.cursors] == [7]
        assert found.cursors[0].exact

    in_world(story)


def test_more_topics_than_have_series_are_in_the_sums() -> None:
    async def story(world: World) -> None:
        await ten_messages(world, acknowledged=0)
        await world.broker.unload(NAME)
        await world.broker.unloaded.round()
        world.broker.config = world.broker.config.__class__(metrics_topics_max=0)
        text = "".join(registry_for(world.broker).scrape())
        assert "pulsar_msg_backlog{" not in text
        assert 'magnetar_unloaded_backlog_entries{cluster="standalone",namespace="public/default"} 10' in text

    in_world(story)

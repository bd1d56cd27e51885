"""What is known of topics that are not loaded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar.admin.metrics.broker_metrics import registry_for
from magnetar.base.names import TopicName
from magnetar.broker.config import BrokerConfig
from magnetar.broker.unloaded import unloaded_topics
from magnetar.managedlog.log_metadata import log_path
from magnetar.managedlog.peeking import peek
from magnetar.tiered.policy import MAX_AGE
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


def test_sums_are_zero_where_every_topic_is_loaded() -> None:
    """A gauge that vanished would keep its last value in a query over some time."""

    async def story(world: World) -> None:
        await ten_messages(world, acknowledged=0)
        await world.broker.unload(NAME)
        await world.broker.unloaded.round()
        sums = ("topics", "inexact_topics", "backlog_entries", "storage_bytes")
        names = [
            f'magnetar_unloaded_{each}{{cluster="standalone",namespace="public/default"}}' for each in sums
        ]
        assert shown(world)[names[0]] == 1
        await world.topic()
        await world.broker.unloaded.round()
        found = shown(world)
        assert [found.get(name) for name in names] == [0, 0, 0, 0]

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


KEEP = {
    "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
    "offload_deletion_lag_ms": 4 * 3_600_000,
}


async def published(world: World, policies: dict[str, object]) -> None:
    """A topic of these policies with ten messages, in memory, in its open ledger."""
    await world.broker.policies.update_namespace(
        NAME.namespace_name, lambda document: document.update({**KEEP, **policies})
    )
    await ten_messages(world, acknowledged=10)


def tiered(story: Callable[[World], Awaitable[None]], folder: Path) -> None:
    in_world(story, BrokerConfig(idle_topic_unload_s=600), work_dir=folder)


async def copies(world: World) -> list[bool]:
    return [ledger.offload is not None for ledger in await world.logs.peek_sealed(NAME.log_name)]


async def offload(world: World) -> None:
    """What the process does from time to time."""
    assert world.broker.offloading is not None
    await world.broker.offloading.round()
    await world.settle()


@pytest.mark.parametrize(
    "policies", [{"offload_threshold": 0}, {MAX_AGE: 3600}, {"offload_threshold_in_seconds": 60}]
)
def test_a_topic_that_nobody_loads_gets_its_history_out_and_leaves_again(
    policies: dict[str, object], tmp_path: Path
) -> None:
    async def story(world: World) -> None:
        await published(world, policies)
        await world.broker.unload(NAME)
        world.clock.advance(60_000)
        await world.broker.unloaded.round()
        assert str(NAME) in world.broker.topics
        # Not before it is copied, however long that takes.
        for _ in range(3):
            world.clock.advance(600_000)
            await world.broker.inactive.round()
        assert str(NAME) in world.broker.topics
        await offload(world)
        for _ in range(2):
            world.clock.advance(600_000)
            await world.broker.inactive.round()
        assert world.broker.topics == {}
        assert await copies(world) == [True]
        await world.broker.unloaded.round()
        assert world.broker.topics == {}, "there is nothing to do any more"
        # Until the lag is over: then its copy is the only one.
        world.clock.advance(4 * 3_600_000)
        await world.broker.unloaded.round()
        await offload(world)
        (ledger,) = await world.logs.peek_sealed(NAME.log_name)
        assert ledger.offload is not None
        assert ledger.offload.local_deleted

    tiered(story, tmp_path)


def test_an_open_ledger_that_a_crash_left_is_history_too(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await published(world, {"offload_threshold": 0})
        path = log_path(NAME.log_name)
        as_of_the_crash = await world.store.get(path)
        assert as_of_the_crash is not None
        await world.broker.unload(NAME)
        await world.store.put(path, as_of_the_crash.data)
        assert await world.logs.peek_sealed(NAME.log_name) == []
        found = await peek(world.store, NAME.log_name, frozenset())
        assert found is not None
        assert found.to_offload == 1
        await world.broker.unloaded.round()
        await offload(world)
        assert await copies(world) == [True]

    tiered(story, tmp_path)


@pytest.mark.parametrize("policies", [{}, {"offload_threshold": 1 << 30}])
def test_a_topic_whose_policy_wants_nothing_yet_is_not_loaded(
    policies: dict[str, object], tmp_path: Path
) -> None:
    async def story(world: World) -> None:
        await published(world, policies)
        await world.broker.unload(NAME)
        await world.broker.unloaded.round()
        assert world.broker.topics == {}

    tiered(story, tmp_path)


def test_no_more_than_so_many_are_loaded_in_one_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unloaded_topics, "WOKEN_MAX", 2)

    async def story(world: World) -> None:
        await published(world, {"offload_threshold": 0})
        peer = world.peer()
        names = [TopicName.parse(f"{TOPIC}-{number}") for number in range(4)]
        for name in names:
            (await world.topic(str(name))).log.append([b"x"], None)
        await world.settle()
        peer.session.lost()
        for name in (NAME, *names):
            await world.broker.unload(name)
        for loaded in (2, 4, 5):
            await world.broker.unloaded.round()
            assert len(world.broker.topics) == loaded

    tiered(story, tmp_path)


def test_the_lag_of_history_is_shown_loaded_or_not(tmp_path: Path) -> None:
    series = (
        f'magnetar_history_lag_seconds{{cluster="standalone",namespace="public/default",topic="{TOPIC}"}}'
    )

    async def story(world: World) -> None:
        await published(world, {MAX_AGE: 3600})
        assert world.broker.offloading is not None
        await world.broker.offloading.fresh_round()
        world.clock.advance(90_000)
        assert shown(world)[series] == 90
        world.broker.unloaded._woken = unloaded_topics.WOKEN_MAX
        await world.broker.unload(NAME)
        await world.broker.unloaded.round()
        await offload(world)
        await world.broker.offloading.fresh_round()
        assert shown(world)[series] == 0

        await world.broker.policies.update_namespace(
            NAME.namespace_name, lambda document: document.update({MAX_AGE: 0})
        )
        await world.broker.apply_policies()
        assert series not in shown(world)

    tiered(story, tmp_path)

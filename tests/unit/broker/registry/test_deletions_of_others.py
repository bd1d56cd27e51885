"""Deletions on a cluster of several brokers: data goes only where its owner deletes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.ownership.health_topics import health_topic
from magnetar.broker.ownership.records import owner_path
from magnetar.managedlog.errors import LogFencedError
from magnetar.managedlog.log_metadata import log_path
from magnetar.metadata.store import OPERATIONS_MAX, Operation, Stat, Value
from magnetar.runtime.http_exchange import HttpAnswer
from support.admin_api import AdminApi, T
from support.shared_cluster import OtherBroker, bundles_of, on_a_shared_cluster, owners_of, settled

NAME = TopicName.parse("persistent://public/default/t")
N = "/admin/v2/namespaces"


async def served_elsewhere(api: AdminApi, other: OtherBroker, name: TopicName) -> None:
    """A topic with a message, whose bundle another broker has."""
    await owners_of(api).require([name])
    await api.publish(str(name), b"message")
    await owners_of(api).move(await owners_of(api).bundle_of(name))
    await other.own_bundle_of(name)


def test_a_topic_of_another_broker_keeps_its_data() -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await served_elsewhere(api, other, NAME)
        with pytest.raises(ServiceNotReadyError, match="not served by this broker"):
            await api.broker.delete_topic(NAME, force=True)
        assert await api.broker.exists(NAME)

    on_a_shared_cluster(story)


def test_a_topic_whose_bundle_leaves_during_its_deletion_keeps_its_data() -> None:
    async def story(api: AdminApi, _: OtherBroker) -> None:
        await owners_of(api).require([NAME])
        await api.publish(str(NAME), b"message")
        bundle = await owners_of(api).bundle_of(NAME)
        topic = api.broker.topics[str(NAME)]
        closing = topic.log.close

        async def close() -> None:
            await closing()
            owners_of(api).let_go([bundle])

        topic.log.close = close  # type: ignore[method-assign]  # the bundle leaves in the middle
        with pytest.raises(ServiceNotReadyError, match="not served by this broker"):
            await api.broker.delete_topic(NAME, force=True)
        assert await api.broker.exists(NAME)

    on_a_shared_cluster(story)


def test_a_log_that_another_broker_opened_during_its_deletion_is_kept() -> None:
    """This broker's session is lost, and it goes on with what it has begun."""

    async def story(api: AdminApi, _: OtherBroker) -> None:
        await owners_of(api).require([NAME])
        await api.publish(str(NAME), b"message")
        path = log_path(NAME.log_name)
        deleting = api.store.delete

        async def delete(at: str, **expected: Any) -> None:
            if at == path:
                value = await api.store.get(path)
                assert value is not None
                await api.store.put(path, value.data)  # as its first ledger would be listed
            await deleting(at, **expected)

        api.store.delete = delete  # type: ignore[method-assign]  # the other one is faster
        with pytest.raises(LogFencedError, match="taken over by another owner"):
            await api.logs.delete(NAME.log_name)
        assert await api.logs.exists(NAME.log_name)

    on_a_shared_cluster(story)


def while_the_list_is_read(api: AdminApi, name: TopicName, happens: Callable[[], Awaitable[None]]) -> None:
    """Something happens in the store when a deletion begins to read the list of the topic's ledgers."""
    path, reading = log_path(name.log_name), api.store.get

    async def get(at: str) -> Value | None:
        if at == path:
            api.store.get = reading  # type: ignore[method-assign]
            await happens()
        return await reading(at)

    api.store.get = get  # type: ignore[method-assign]


def test_a_topic_whose_owner_has_changed_when_its_list_is_read_keeps_its_data() -> None:
    """This broker's session has ended, and it does not know. The next owner has acknowledged messages."""

    async def story(api: AdminApi, _: OtherBroker) -> None:
        await owners_of(api).require([NAME])
        await api.publish(str(NAME), b"message")
        path = log_path(NAME.log_name)
        before = await api.store.get(path)
        assert before is not None

        async def lost() -> None:
            await api.store.delete(owner_path(await owners_of(api).bundle_of(NAME)))
            await api.store.put(path, before.data)  # as the next owner's ledger would be listed

        admit = owners_of(api).admit

        async def admitted(name: TopicName) -> None:
            await admit(name)
            while_the_list_is_read(api, name, lost)

        owners_of(api).admit = admitted  # type: ignore[method-assign]  # it was asked before
        with pytest.raises(ServiceNotReadyError, match="not served by this broker any more"):
            await api.broker.delete_topic(NAME, force=True)
        after = await api.store.get(path)
        assert after is not None
        assert after.data == before.data, "no ledger has left the list"

    on_a_shared_cluster(story)


def test_cursors_that_the_next_owner_has_read_are_kept() -> None:
    async def story(api: AdminApi, _: OtherBroker) -> None:
        await owners_of(api).require([NAME])
        await api.publish(str(NAME), b"message")
        count = 2 * OPERATIONS_MAX
        for number in range(count):
            await api.done("PUT", f"{T}/t/subscription/s{number:03d}")
        path, transact = log_path(NAME.log_name), api.store.transact
        calls: list[int] = []

        async def counted(operations: Sequence[Operation]) -> list[Stat | None]:
            calls.append(len(operations))
            if len(calls) == 2:
                value = await api.store.get(path)
                assert value is not None
                await api.store.put(path, value.data)  # as its first ledger would be listed
            return await transact(operations)

        api.store.transact = counted  # type: ignore[method-assign]
        with pytest.raises(LogFencedError, match="taken over by another owner"):
            await api.logs.delete(NAME.log_name)
        assert calls == [OPERATIONS_MAX] * 2
        assert len(await api.store.children(path)) == count - (OPERATIONS_MAX - 1)

    on_a_shared_cluster(story)


@pytest.mark.parametrize("force", ["true", "false"])
def test_a_partitioned_topic_is_kept_whole_when_the_broker_of_a_part_cannot_be_asked(force: str) -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await api.done("PUT", f"{T}/p/partitions", 8)
        parts = [TopicName.parse(f"persistent://public/default/p-partition-{i}") for i in range(8)]
        await owners_of(api).require(parts)
        for part in parts:
            await api.publish(str(part), b"message")
        bundle = await owners_of(api).bundle_of(parts[-1])
        assert not bundle.has(parts[0])
        await owners_of(api).move(bundle)
        await other.own(bundle)

        async def refuses(*_: object) -> HttpAnswer:
            raise ConnectionRefusedError("nobody listens")

        api.other_brokers = refuses
        status, reason = await api.refused("DELETE", f"{T}/p/partitions?force={force}")
        assert status == 503
        assert "broker other:8080" in reason
        assert "nobody listens" in reason
        assert [await api.logs.exists(part.log_name) for part in parts] == [True] * 8
        assert (await api.get(f"{T}/p/partitions"))["partitions"] == 8

    on_a_shared_cluster(story)


def test_a_partitioned_topic_without_owners_is_deleted_here() -> None:
    async def story(api: AdminApi, _: OtherBroker) -> None:
        await api.done("PUT", f"{T}/p/partitions", 8)
        await api.done("DELETE", f"{T}/p/partitions")
        assert await api.get(f"{T}/partitioned") == []

    on_a_shared_cluster(story)


def test_an_unused_partition_does_not_end_a_topic_that_another_broker_serves() -> None:
    """Non-persistent topics leave no trace in the metadata store."""

    async def story(api: AdminApi, other: OtherBroker) -> None:
        at = T.replace("persistent", "non-persistent")
        await api.done("PUT", f"{at}/p/partitions", 8)
        name = TopicName.parse("non-persistent://public/default/p")
        await other.own_bundle_of(name.with_partition(7))
        await api.broker.partitioned.end_unused(name)
        assert await api.broker.policies.partitions(name) == 8
        await api.store.delete(owner_path(await owners_of(api).bundle_of(name.with_partition(7))))
        await api.broker.partitioned.end_unused(name)
        assert await api.broker.policies.partitions(name) == 0

    on_a_shared_cluster(story)


def test_the_bundles_of_a_namespace_move_here_before_it_is_deleted() -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await api.done("PUT", f"{N}/public/n")
        names = [TopicName.parse(f"persistent://public/n/t-{number}") for number in range(8)]
        await owners_of(api).require(names)
        for name in names:
            await api.publish(str(name), b"message")
        first, *_ = bundles = bundles_of("public/n")
        await owners_of(api).move(first)
        await other.own(first)
        existed: list[bool] = []
        delete = api.logs.delete

        async def deleted(log: str, *confirmed: Any) -> None:
            existed.append(owners_of(api).ownership.serves(first))
            await delete(log, *confirmed)

        api.logs.delete = deleted  # type: ignore[method-assign]  # looks at what is so at each deletion
        await api.done("DELETE", f"{N}/public/n?force=true")
        assert existed == [True] * 8
        assert other.moved == [first]
        await settled()
        assert await api.store.children("/namespace/public/n") == []
        assert not any(owners_of(api).ownership.serves(bundle) for bundle in bundles)
        await api.done("PUT", f"{N}/public/n")
        await owners_of(api).require(names)
        assert await api.get(f"{N}/public/n/topics") == []

    on_a_shared_cluster(story)


def test_a_namespace_is_kept_whole_when_a_bundle_does_not_come() -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await api.done("PUT", f"{N}/public/n")
        name = TopicName.parse("persistent://public/n/t")
        await served_elsewhere(api, other, name)
        await api.store.put("/magnetar/drains/127.0.0.1:8080", b"")
        await settled()
        assert owners_of(api).draining
        assert (await api.refused("DELETE", f"{N}/public/n?force=true"))[0] == 503
        assert (await api.refused("DELETE", "/admin/v2/tenants/public?force=true"))[0] == 503
        assert await api.broker.exists(name)

    on_a_shared_cluster(story)


def test_a_namespace_is_kept_whole_while_another_broker_checks_itself_there() -> None:
    """That topic is its own, whichever broker has the bundle."""

    async def story(api: AdminApi, other: OtherBroker) -> None:
        names = [TopicName.parse("persistent://pulsar/system/a"), health_topic("other:8080")]
        await owners_of(api).require(names)
        for name in names:
            await api.publish(str(name), b"message")
        other.join()
        assert (await api.refused("DELETE", f"{N}/pulsar/system?force=true"))[0] == 503
        assert [await api.logs.exists(name.log_name) for name in names] == [True, True]

    on_a_shared_cluster(story)

"""What the store of policies remembers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.config import BrokerConfig
from magnetar.broker.errors import ConflictError, NamespaceNotFoundError
from magnetar.broker.inactive.expiry import expiration_ms
from magnetar.broker.inactive.policy import InactivePolicy
from magnetar.broker.limits.limits import Limits, effective
from magnetar.broker.policies import document_cache
from magnetar.broker.policies.policies import PolicyStore
from magnetar.broker.policies.topic_settings import TopicSettings
from magnetar.managedlog.config import UNLIMITED, Retention
from magnetar.metadata import keys
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import Operation, Stat


def test_names_that_are_only_asked_for_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(document_cache, "_DOCUMENTS_KEPT", 4)
        store = PolicyStore(MemoryMetadataStore(ManualClock()), "standalone")
        for i in range(100):
            assert await store.partitions(TopicName.parse(f"asked-{i}")) == 0
        assert len(store.documents._documents) <= 4
        store.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    "damaged", ["7", [], {"retentionTimeInMinutes": "x"}, {"retentionTimeInMinutes": 5, "x": []}]
)
def test_nothing_is_deleted_because_a_policy_is_damaged(
    caplog: pytest.LogCaptureFixture, damaged: object
) -> None:
    """The defaults of the broker keep nothing, expire messages and subscriptions, and delete topics."""

    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        parts = ("retention_policies", "inactive_topic_policies", "subscription_expiration_time_minutes")
        namespace = dict.fromkeys((*parts, "message_ttl_in_seconds"), damaged)
        own = dict.fromkeys((*parts, "messageTTLInSeconds"), damaged)
        topic = TopicName.parse("persistent://t/n/a")
        await store.put(keys.namespace_policies(topic.namespace_name), json.dumps(namespace).encode())
        await store.put(keys.topic_policies(topic), json.dumps(own).encode())
        policies_ = PolicyStore(store, "standalone")
        found = await policies_.namespace(topic.namespace_name), await policies_.topic_policies(topic)
        for own, namespace in (({}, found[0]), (found[1], {})):
            config = BrokerConfig(retention_minutes=0, retention_mib=0)
            assert TopicSettings.of(config, own, namespace).retention == Retention(
                ms=UNLIMITED, size_bytes=UNLIMITED
            )
            assert not InactivePolicy(delete=True).under(own, namespace).delete
            assert effective(own, namespace, Limits(ttl_s=9), "standalone").ttl_s == 0
        assert expiration_ms(found[0], 9) == 0
        for path in (keys.namespace_policies(topic.namespace_name), keys.topic_policies(topic)):
            assert f"parts of {path} cannot be used" in caplog.text
        policies_.close()

    asyncio.run(story())


def test_an_update_does_not_bring_a_deleted_tenant_back() -> None:
    """The update had looked whether the tenant was there, it was deleted, and then the update wrote it."""

    class Slow(MemoryMetadataStore):
        """The tenant is deleted between the update's look and its write."""

        async def put(self, path: str, *arguments: Any, **named: Any) -> Stat:
            if path == keys.tenant("t") and await self.exists(path) and not self.deleted:
                self.deleted = True
                await self.delete(path)
            return await super().put(path, *arguments, **named)

        deleted = False

    async def story() -> None:
        store = PolicyStore(Slow(ManualClock()), "standalone")
        await store.create_tenant("t", {"adminRoles": []})
        with pytest.raises(NamespaceNotFoundError):
            await store.update_tenant("t", {"adminRoles": ["r"]})
        assert await store.tenants() == []
        store.close()

    asyncio.run(story())


class DeletedBetween(MemoryMetadataStore):
    """Another broker deletes tenant `t` right before a namespace of it is written."""

    async def put(self, path: str, data: bytes, **how: Any) -> Stat:
        if path.startswith(f"{keys.tenant('t')}/"):
            await self.delete(keys.tenant("t"))
        return await super().put(path, data, **how)

    async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
        await self.delete(keys.tenant("t"))
        return await super().transact(operations)


def test_no_namespace_is_made_in_a_tenant_that_is_deleted_meanwhile() -> None:
    async def story() -> None:
        store = DeletedBetween(ManualClock())
        policies = PolicyStore(store, "standalone")
        await policies.create_tenant("t", {})
        with pytest.raises(NamespaceNotFoundError):
            await policies.create_namespace(NamespaceName("t", "n"), {})
        assert not await store.exists(keys.namespace_policies(NamespaceName("t", "n")))
        policies.close()

    asyncio.run(story())


def test_a_tenant_stays_when_a_namespace_is_made_right_before_its_deletion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        policies = PolicyStore(store, "standalone")
        await policies.create_tenant("t", {})
        delete = store.delete

        async def late(path: str, **how: Any) -> None:
            await policies.create_namespace(NamespaceName("t", "n"), {})
            await delete(path, **how)

        monkeypatch.setattr(store, "delete", late)
        with pytest.raises(ConflictError, match="active namespaces"):
            await policies.delete_tenant("t")
        assert await policies.tenant("t") is not None
        policies.close()

    asyncio.run(story())

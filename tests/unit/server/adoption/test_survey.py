"""What a survey of a Pulsar cluster tells, and what prevents its adoption."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import StartupError
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.records import BrokerReport, BrokerUrls
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.managedlog import managedlog_pb2 as pb
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.opening import parse_metadata_url
from magnetar.schemas import pulsar_schemas_pb2 as stored
from magnetar.server.cluster_metadata import ClusterMetadata

LEDGER = LedgerMetadata(LedgerState.OPEN, None, ((0, ("a",)),), write_quorum=1, ack_quorum=1)
TOPIC = "/managed-ledgers/acme/orders/persistent/plain"


async def _made(service: MemoryMetadataStore) -> int:
    """A small cluster `old`; the ledger of its topic."""
    await initialize_cluster(service, BookKeeperTree(), "id")
    ledger_id = (await TreeLedgerRegistry(service, BookKeeperTree()).create(LEDGER)).ledger_id
    documents = {
        "/admin/clusters/old": {},
        "/admin/policies/acme": {"adminRoles": [], "allowedClusters": ["old"]},
        "/admin/policies/acme/orders": {"replication_clusters": ["old"]},
        "/admin/partitioned-topics/acme/orders/persistent/parts": {"partitions": 3},
    }
    for path, document in documents.items():
        await service.put(path, json.dumps(document).encode())
    await put_log(service, TOPIC, ledger_id)
    await service.put(f"{TOPIC}/s", pb.ManagedCursorInfo(cursorsLedgerId=-1).SerializeToString())
    return ledger_id


async def put_log(service: MemoryMetadataStore, path: str, ledger_id: int) -> None:
    info = pb.ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=ledger_id)
    await service.put(path, info.SerializeToString())


def cluster(service: MemoryMetadataStore, *, adopted: bool = False, name: str = "old") -> ClusterMetadata:
    return ClusterMetadata(service, parse_metadata_url("zk://h:1/ledgers"), name, service, adopted=adopted)


def run(story: Callable[[MemoryMetadataStore, int], Awaitable[None]]) -> None:
    async def main() -> None:
        service = MemoryMetadataStore(ManualClock())
        await story(service, await _made(service))
        await service.close()

    asyncio.run(main())


def test_what_is_understood_is_counted_and_adopted() -> None:
    async def story(service: MemoryMetadataStore, _ledger: int) -> None:
        found = await cluster(service).survey()
        assert found.findings == []
        assert found.counts == {
            "clusters": 1,
            "tenants": 1,
            "namespaces": 1,
            "partitioned topics": 1,
            "topics": 1,
            "subscriptions": 1,
            "ledgers": 1,
        }
        assert not await service.children("/magnetar")
        await cluster(service).adopt()
        assert await service.exists("/magnetar/old/adopted")
        # Again is harmless.
        await cluster(service, adopted=True).adopt()
        await cluster(service, adopted=True).give_back()
        assert not await service.exists("/magnetar/old/adopted")
        # What brokers of ours left, which is not Pulsar's, is not another cluster.
        await service.put("/magnetar/old/magnetar/last-moves", b"[]")
        await cluster(service).adopt()
        assert await service.exists("/magnetar/old/adopted")

    run(story)


async def _pulsar_runs(service: MemoryMetadataStore, ledger: int) -> None:
    await service.put("/loadbalance/brokers/b:8080", b'{"pulsarServiceUrl": "pulsar://b:6650"}')


async def _migrates(service: MemoryMetadataStore, ledger: int) -> None:
    await service.put("/pulsar/migration-coordinator/migration", b'{"phase": "COPYING"}')


async def _list_is_damaged(service: MemoryMetadataStore, ledger: int) -> None:
    await service.put(TOPIC, b"\xff")


async def _cursor_is_damaged(service: MemoryMetadataStore, ledger: int) -> None:
    await service.put(f"{TOPIC}/s", b"\xff")


async def _policies_are_damaged(service: MemoryMetadataStore, ledger: int) -> None:
    await service.put("/admin/policies/acme/orders", b"{")


async def _ledger_is_gone(service: MemoryMetadataStore, ledger: int) -> None:
    await put_log(service, TOPIC, 77)


async def _transactions(service: MemoryMetadataStore, ledger: int) -> None:
    await put_log(service, "/managed-ledgers/pulsar/system/persistent/__transaction_log_0", ledger)


async def _aborted(service: MemoryMetadataStore, ledger: int) -> None:
    await put_log(service, "/managed-ledgers/acme/orders/persistent/__transaction_buffer_snapshot", ledger)


async def _schema_is_damaged(service: MemoryMetadataStore, ledger: int) -> None:
    await service.put("/schemas/acme/orders/plain", b"\xff")


async def _schema_is_lost(service: MemoryMetadataStore, ledger: int) -> None:
    entry = stored.SchemaIndexEntry(
        version=0, position=stored.SchemaPosition(ledgerId=88, entryId=0), hash=b""
    )
    locator = stored.SchemaLocator(info=entry, index=[entry])
    await service.put("/schemas/acme/orders/plain", locator.SerializeToString())


async def _offloaded(service: MemoryMetadataStore, ledger: int) -> None:
    info = pb.ManagedLedgerInfo()
    record = info.ledgerInfo.add(ledgerId=ledger, entries=3, size=9, timestamp=1)
    record.offloadContext.complete = record.offloadContext.bookkeeperDeleted = True
    record.offloadContext.driverMetadata.name = "aws-s3"
    await service.put(TOPIC, info.SerializeToString())


PREVENTING = [
    (_pulsar_runs, "a broker of Apache Pulsar runs"),
    (_migrates, "migrated to another store"),
    (_list_is_damaged, "not a ManagedLedgerInfo"),
    (_cursor_is_damaged, "not a ManagedCursorInfo"),
    (_policies_are_damaged, "/admin/policies/acme/orders"),
    (_ledger_is_gone, "its ledger 77 is gone"),
    (_transactions, "transactions of Apache Pulsar"),
    (_aborted, "which messages were aborted"),
    (_schema_is_damaged, "not a locator"),
    (_schema_is_lost, "its ledger 88 is gone"),
    (_offloaded, "offloaded only"),
]


@pytest.mark.parametrize(("change", "told"), PREVENTING, ids=[each.__name__ for each, _ in PREVENTING])
def test_what_is_not_understood_prevents_the_adoption(
    change: Callable[[MemoryMetadataStore, int], Awaitable[None]], told: str
) -> None:
    async def story(service: MemoryMetadataStore, ledger: int) -> None:
        await change(service, ledger)
        found = await cluster(service).adopt()
        assert [each for each in found.obstacles if told in f"{each.path} {each.what}"], found.findings
        assert not await service.children("/magnetar")

    run(story)


def test_another_name_is_no_cluster() -> None:
    async def story(service: MemoryMetadataStore, _ledger: int) -> None:
        (finding,) = (await cluster(service, name="new").survey()).obstacles
        assert "Apache Pulsar has no cluster new here, but: old" in finding.what

    run(story)


def test_what_has_no_effect_is_told_and_prevents_nothing() -> None:
    async def story(service: MemoryMetadataStore, _ledger: int) -> None:
        document = {"replication_clusters": ["old", "far"], "migrated": True}
        await service.put("/admin/policies/acme/orders", json.dumps(document).encode())
        await service.put("/admin/policies/acme/west/v1", b"{}")
        await service.put("/managed-ledgers/acme/west/v1/persistent", b"")
        await service.put("/resourcegroups/g", b"{}")
        await service.put("/admin/flags/policies-readonly", b"")
        cursor = pb.ManagedCursorInfo(cursorsLedgerId=99).SerializeToString()
        await service.put(f"{TOPIC}/pulsar.repl.far", cursor)
        found = await cluster(service).survey()
        assert found.obstacles == []
        said = " | ".join(each.what for each in found.findings)
        for part in ("replicated to far", "migrated", "version 1", "resource groups", "ledger 99 is gone"):
            assert part in said
        assert found.findings[0].row()["weight"] == "to know"

    run(story)


def test_a_cluster_of_ours_is_not_hidden() -> None:
    async def story(service: MemoryMetadataStore, _ledger: int) -> None:
        await service.put("/magnetar/old/admin/clusters/old", b"{}")
        with pytest.raises(StartupError, match="already has a cluster of Magnetar's"):
            await cluster(service).adopt()

    run(story)


def test_it_is_given_back_when_no_broker_runs() -> None:
    async def story(service: MemoryMetadataStore, _ledger: int) -> None:
        with pytest.raises(StartupError, match="was not adopted"):
            await cluster(service).give_back()
        await cluster(service).adopt()
        urls = BrokerUrls(Addresses(plain="pulsar://a:6650", http="http://a:8080"))
        await service.put("/loadbalance/brokers/a:8080", BrokerReport(urls, socket="s").encode())
        assert (await cluster(service, adopted=True).survey()).obstacles == []
        with pytest.raises(StartupError, match="brokers run"):
            await cluster(service, adopted=True).give_back()
        with pytest.raises(StartupError, match="was adopted"):
            await cluster(service, adopted=True).initialize()

    run(story)

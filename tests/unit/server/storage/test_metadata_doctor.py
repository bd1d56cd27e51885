"""What the doctor finds in damaged metadata: every kind of value that a broker reads, by its path."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from magnetar.base.clock import ManualClock
from magnetar.base.errors import MagnetarError, StartupError
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.policies.policies import PolicyStore
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.kept import KeptTransactions
from magnetar.broker.transactions.outcomes import PAGE_BYTES
from magnetar.broker.transactions.transaction import Transaction
from magnetar.cli.main import magnetar
from magnetar.ledger.paths import ID_GENERATOR, INSTANCE_ID
from magnetar.metadata import keys
from magnetar.metadata.adoption import Adoption
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.opening import parse_metadata_url
from magnetar.runtime.file_lock import FileLock
from magnetar.schemas import pulsar_schemas_pb2 as stored
from magnetar.schemas.registry import SchemaRegistry
from magnetar.server.storage import metadata_doctor
from magnetar.server.storage.metadata_doctor import of_folder, of_store
from magnetar.server.storage.metadata_kinds import KINDS, kind_of
from magnetar.wire import pulsar_pb2 as pb
from unit.metadata.test_damaged_documents import GARBAGE, READERS

ASIDE = "/magnetar/transactions/damaged-outcomes/{coordinator}/{page}-{sum}"
ASIDE_PART = "/magnetar/transactions/damaged-parts/{...}/{topic}/{coordinator}-{number}-{sum}"


def test_each_kind_that_is_read_has_a_check() -> None:
    assert {kind.name for kind in KINDS} == {*READERS, ASIDE, ASIDE_PART}
    for kind in KINDS:
        assert kind.consequence
        assert kind.remedy


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("kind", READERS)
def test_what_a_broker_refuses_is_found(kind: str, garbage: str) -> None:
    path, read = READERS[kind]
    found = kind_of(path)
    assert found is not None
    assert found.name == kind

    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        await store.put(path, GARBAGE[garbage])
        report = await of_store(store)
        assert report.values == 1
        try:
            await read(store, path)
            refused = False
        except MagnetarError:
            refused = True
        for each in report.damaged:
            assert (each.path, each.kind, each.consequence) == (path, kind, found.consequence)
            assert each.damage
        assert not refused or [each.partly for each in report.damaged] == [False], "the broker refuses it"

    asyncio.run(story())


@pytest.mark.parametrize("kind", READERS)
def test_no_kind_takes_everything(kind: str) -> None:
    path, _ = READERS[kind]

    async def story() -> None:
        for garbage in GARBAGE.values():
            store = MemoryMetadataStore(ManualClock())
            await store.put(path, garbage)
            if (await of_store(store)).damaged:
                return
        raise AssertionError(f"no garbage is found at {path}")

    asyncio.run(story())


def test_a_value_of_which_a_part_is_ignored_names_the_part() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        await store.put("/admin/policies/t", b'{"adminRoles":"root","allowedClusters":["c"]}')
        (found,) = (await of_store(store)).damaged
        assert (found.damage, found.partly) == ("ignored: adminRoles", True)

    asyncio.run(story())


async def healthy(store: MemoryMetadataStore | EmbeddedMetadataStore) -> None:
    """What brokers write: nothing of it is damaged."""
    policies = PolicyStore(store, "standalone")
    await policies.bootstrap("pulsar://h:1", "http://h:2")
    topic = TopicName.parse("persistent://public/default/t")
    await policies.create_partitioned(topic, 3, {"a": "b"})
    await policies.update_topic(topic, lambda document: document.update(publishRate={"inMsgs": 1}))
    await policies.create_namespace(NamespaceName("public", "quiet"), {})
    policies.close()
    schema = pb.Schema(name="s", type=pb.Schema.String, schema_data=b"")
    registry = SchemaRegistry(store)
    await registry.add(topic, schema)
    await registry.retire(topic)
    registry.close()
    kept = KeptTransactions(store)
    await kept.reserve(0, 100, -1)
    txn = Transaction(TxnId(0, 7), owner="o", ttl_ms=1, started_ms=1, deadline_ms=1)
    await kept.write(txn, txn.header())
    await store.put(f"{keys.transaction_outcomes(0)}/0", bytes(PAGE_BYTES))
    await store.put(ID_GENERATOR, b"256")
    await store.put(INSTANCE_ID, b"0b2b1e2e-9f5c-4f0e-8f4b-1f2d3c4b5a69")
    await store.put(keys.GENERATION, b"1")


def test_what_a_broker_writes_is_whole() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        await healthy(store)
        report = await of_store(store)
        assert report.damaged == []
        assert report.values >= 12

    asyncio.run(story())


def test_a_damaged_page_that_was_put_aside_is_told() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        await store.put("/magnetar/transactions/damaged-outcomes/0/0-1234", b"x")
        (found,) = (await of_store(store)).damaged
        assert found.kind == ASIDE

    asyncio.run(story())


def test_a_service_is_read_below_the_cluster_and_at_the_bookies_root(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        await store.put("/magnetar/prod/admin/policies/t", b"x")
        await store.put("/magnetar/other/admin/policies/t", b"x")
        await store.put("/bk/ledgers/00/0000/L0001", b"x")
        await store.put("/bk/ledgers/idgen", b"")
        await store.put("/bookies", b"x")

        async def opened(*_args: object, **_options: object) -> MemoryMetadataStore:
            return store

        monkeypatch.setattr(metadata_doctor, "open_metadata", opened)
        report = await metadata_doctor.of_service("zk://h:1/bk/ledgers", "prod")
        assert sorted(each.path for each in report.damaged) == [
            "/bk/ledgers/00/0000/L0001",
            "/bookies",
            "/magnetar/prod/admin/policies/t",
        ]
        assert parse_metadata_url("zk://h:1/bk/ledgers").root == "/bk/ledgers"

    asyncio.run(story())


@pytest.mark.parametrize("record", [Adoption("/mine", 1).encode(), b"?"])
def test_an_adopted_cluster_is_read_where_pulsar_has_it(
    monkeypatch: pytest.MonkeyPatch, record: bytes
) -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        damaged = (
            "/magnetar/old/magnetar/generation",
            "/mine/admin/policies/t",
            "/mine/bookies",
            "/mine/ledgers/00/0000/L0001",
            "/mine/loadbalance/resource-quota/namespace/t/n/b",
            "/mine/managed-ledgers/t/n/persistent/topic",
            "/mine/schemas/t/n/topic",
        )
        for path in (*damaged, "/admin/policies/t", "/managed-ledgers/t/n/persistent/topic"):
            await store.put(path, b"x")
        await store.put("/magnetar/old/adopted", record)
        entry = {"position": {"ledgerId": 1, "entryId": 0}, "version": 0, "hash": b""}
        locator = stored.SchemaLocator(info=entry, index=[entry])
        await store.put("/mine/schemas/t/n/whole", locator.SerializeToString())

        async def opened(*_args: object, **_options: object) -> MemoryMetadataStore:
            return store

        monkeypatch.setattr(metadata_doctor, "open_metadata", opened)
        report = await metadata_doctor.of_service("zk://h:1/mine/ledgers", "old")
        found = [each.path for each in report.damaged]
        if record == b"?":
            assert "/magnetar/old/adopted" in found
        else:
            assert tuple(sorted(found)) == damaged

    asyncio.run(story())


def test_the_command_names_path_damage_consequence_and_remedy(tmp_path: Path) -> None:
    async def prepare() -> None:
        file = tmp_path / "metadata" / "metadata.db"
        file.parent.mkdir()
        store = EmbeddedMetadataStore.open(file, clock=ManualClock(), durable=False)
        await healthy(store)
        await store.put("/magnetar/transactions/headers/0/7", b"{")
        await store.close()

    asyncio.run(prepare())
    words = ["doctor", "metadata", "--data", str(tmp_path)]
    told = CliRunner().invoke(magnetar, words, standalone_mode=False)
    assert told.return_value == 7
    for part in ("/magnetar/transactions/headers/0/7", "delivers none", "transactions abort", "1 of "):
        assert part.replace("delivers", "deliver") in told.output
    (row,) = json.loads(CliRunner().invoke(magnetar, [*words, "-o", "json"]).output)["damaged"]
    assert row["path"] == "/magnetar/transactions/headers/0/7"
    lock = FileLock(tmp_path / "LOCK", "the data folder")
    try:
        with pytest.raises(StartupError):
            asyncio.run(of_folder(tmp_path))
    finally:
        lock.release()
    with pytest.raises(StartupError, match="--metadata"):
        asyncio.run(of_folder(tmp_path / "elsewhere"))

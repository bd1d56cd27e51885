"""BookKeeper's tree on ZooKeeper: Apache's shell reads what we wrote, and we read what it wrote."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
)
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster, open_tree
from magnetar.metadata.bookkeeper.cookies import encode_cookie
from magnetar.metadata.bookkeeper.ledger_layouts import LedgerLayout
from magnetar.metadata.bookkeeper.registry import Cookie, RegisteredBookie
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore
from magnetar.metadata.zookeeper.zookeeper_store import ZooKeeperMetadataStore
from support.apache_bookkeeper import ApacheBookKeeper

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

MEMBERS = ("127.0.0.1:3181", "127.0.0.1:3182", "127.0.0.1:3183")


@asynccontextmanager
async def opened(apache: ApacheBookKeeper) -> AsyncIterator[MetadataStore]:
    host, port = apache.zookeeper.split(":")
    store = await ZooKeeperMetadataStore.open([(host, int(port))])
    try:
        yield store
    finally:
        await store.close()


def test_apache_reads_what_we_wrote(apache: ApacheBookKeeper, tmp_path: Path) -> None:
    root = "/tree-ours"
    instance = str(uuid.uuid4())
    cookie = Cookie("127.0.0.1:3181", ("/disk1/journal",), ("/disk2", "/disk3"), instance)

    async def story() -> None:
        def shell(*words: str) -> str:
            return apache.shell(*words, root=root)

        async with opened(apache) as store:
            tree = BookKeeperTree(root)
            assert await initialize_cluster(store, tree, instance)
            assert instance in await asyncio.to_thread(shell, "whatisinstanceid")
            registry = TreeBookieRegistry(store, tree)
            await registry.register(RegisteredBookie.at("b-one", "127.0.0.1", 3181))
            await registry.register(RegisteredBookie.at("b-two", "127.0.0.1", 3182), read_only=True)
            await registry.put_cookie(cookie, expected_version=MUST_NOT_EXIST)
            writable = await asyncio.to_thread(shell, "listbookies", "-rw")
            assert "b-one" in writable
            assert "b-two" not in writable
            assert "b-two" in await asyncio.to_thread(shell, "listbookies", "-ro")
            shown = await asyncio.to_thread(shell, "cookie_get", "127.0.0.1:3181")
            assert encode_cookie(cookie).partition(b"\n")[2].decode().strip() in shown

            ledgers = TreeLedgerRegistry(store, tree)
            plain = LedgerMetadata(LedgerState.OPEN, None, ((0, MEMBERS),), 3, 2, password=b"pw")
            closed = replace(
                plain.closed(LedgerEnd(41, 1 << 33)),
                ensembles=((0, MEMBERS), (17, (MEMBERS[0], "b-one", MEMBERS[2]))),
                created_ms=1_700_000_000_000,
                custom={"application": b"pulsar"},
            )
            made = [await ledgers.create(metadata) for metadata in (plain, plain.recovering(), closed)]
            made += [await ledgers.create(replace(closed, format_version=version)) for version in (1, 2)]
            made.append(await ledgers.create(closed, (1 << 40) + 5))
            listed = await asyncio.to_thread(shell, "listledgers")
            assert set(re.findall(r"\d+", listed)) >= {str(ledger.ledger_id) for ledger in made}
            for ledger in made:
                file = tmp_path / f"{ledger.ledger_id}"
                words = ("ledgermetadata", "-ledgerid", str(ledger.ledger_id))
                text = await asyncio.to_thread(shell, *words)
                assert f"state={ledger.metadata.state.name}" in text
                await asyncio.to_thread(shell, *words, "-dumptofile", str(file))
                # Apache's codec made these bytes of what it had read: nothing was lost on the way.
                assert file.read_bytes() == encode_ledger_metadata(ledger.metadata)
            await registry.close()

    asyncio.run(story())


def test_we_read_what_apache_wrote(apache: ApacheBookKeeper, tmp_path: Path) -> None:
    root = "/tree-theirs"
    apache.shell("initnewcluster", root=root)
    address = apache.start_bookie("keeper", root=root)

    async def story() -> None:
        def shell(*words: str) -> str:
            return apache.shell(*words, root=root)

        async with opened(apache) as store:
            tree = await open_tree(store, root)
            assert tree.layout is LedgerLayout.HIERARCHICAL
            assert not await initialize_cluster(store, tree, "another")
            registry = TreeBookieRegistry(store, tree)
            instance = await registry.instance_id()
            assert instance in await asyncio.to_thread(shell, "whatisinstanceid")
            assert (await registry.bookies()).writable == {address}
            info = await registry.info(address)
            assert info is not None
            assert info.address() == ("127.0.0.1", int(address.split(":")[1]))
            found = await registry.cookie(address)
            assert found is not None
            cookie, version = found
            assert (cookie.bookie_id, cookie.instance_id) == (address, instance)
            assert await registry.known_bookies() == {address}
            # Written again by us it is the same, and Apache's bookie will start with it.
            raw = await store.get(tree.cookie(address))
            assert raw is not None
            assert encode_cookie(cookie) == raw.data
            await registry.put_cookie(cookie, expected_version=version)

            ledgers = TreeLedgerRegistry(store, tree)
            sizes = ["-ensemble", "1", "-writeQuorum", "1", "-ackQuorum", "1", "-numEntries", "3"]
            await asyncio.to_thread(shell, "simpletest", *sizes)
            opened_ledger = LedgerMetadata(LedgerState.OPEN, None, ((0, (address,)),))
            first = await ledgers.create(opened_ledger)
            assert first.ledger_id > 0, "the ledger of the test had the first id"
            file = tmp_path / "dumped"
            file.write_bytes(encode_ledger_metadata(opened_ledger))
            words = ["ledgermetadata", "-ledgerid", "9000000000", "-restorefromfile", str(file)]
            await asyncio.to_thread(shell, *words)
            restored = await ledgers.read(9_000_000_000)
            assert restored.metadata.creation_token is not None, "Apache draws its own"
            assert replace(restored.metadata, creation_token=None) == opened_ledger
            assert {each async for each in ledgers.ledger_ids()} == {first.ledger_id, 9_000_000_000}
            await asyncio.to_thread(shell, "deleteledger", "-ledgerid", "9000000000", "-force")
            assert not await registry.ledger_exists(9_000_000_000)
            await registry.close()

    asyncio.run(story())
    apache.stop_bookie("keeper")
    apache.start_bookie("keeper", root=root)
    apache.stop_bookie("keeper")

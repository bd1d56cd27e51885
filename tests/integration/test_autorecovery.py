"""Auto-recovery over bookies on loopback: what lost bookies held is made anew."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.bookie.network.server import ServerOptions
from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.autorecovery.decommission import Decommission, DecommissionError
from magnetar.ledger.autorecovery.fragments import Lack, fragments_of
from magnetar.ledger.autorecovery.node import AutoRecoveryNode
from magnetar.ledger.autorecovery.recovery_options import RecoveryOptions
from magnetar.ledger.autorecovery.replicating import Replicator
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerOptions, LedgerWriteHandle
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster
from magnetar.metadata.bookkeeper.underreplication import AuditCheck, UnderreplicationPaths, encode_vote
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.keys import BOOKIE_RACKS
from magnetar.server.bookies.bookie_security import BookieSecurity
from magnetar.server.bookies.ledger_access import client_options
from magnetar.server.settings.ledger_settings import LedgerSettings
from support.bookie_nodes import BookieNodes, bookie_nodes
from support.certificates import Authority
from support.ledger_clusters import Marks
from support.standalone import wait_until

pytestmark = pytest.mark.one_process("own")

QUICK = LedgerClientOptions(connect_timeout_s=2.0, answer_timeout_s=2.0, backoff_max_s=0.2)
OPTIONS = LedgerOptions(layout=QuorumLayout(3, 2, 2), password=b"secret")


@asynccontextmanager
async def recovering(
    cluster: BookieNodes,
    node_id: str = "node",
    *,
    check_all_s: float = 0.0,
    check_replicas_s: float = 0.0,
    check_placement_s: float = 0.0,
    access: LedgerClientOptions = QUICK,
) -> AsyncIterator[AutoRecoveryNode]:
    options = RecoveryOptions(
        node_id=node_id,
        open_ledger_grace_s=0.1,
        retry_first_s=0.05,
        check_all_s=check_all_s,
        check_replicas_s=check_replicas_s,
        check_placement_s=check_placement_s,
    )
    node = await AutoRecoveryNode.start(cluster.store, cluster.tree, cluster.clock, options, access)
    try:
        yield node
    finally:
        await node.close()


@asynccontextmanager
async def client_of(cluster: BookieNodes, access: LedgerClientOptions = QUICK) -> AsyncIterator[LedgerClient]:
    client = LedgerClient(Cluster(cluster.registry, cluster.bookies, access))
    try:
        yield client
    finally:
        await client.close()


async def write(client: LedgerClient, count: int) -> tuple[LedgerWriteHandle, list[bytes]]:
    marks = Marks()
    writer = await client.create(OPTIONS, marks)
    payloads = [b"entry %d" % number for number in range(count)]
    writer.append(payloads)
    await marks.reach(count - 1)
    return writer, payloads


async def read(client: LedgerClient, ledger_id: int) -> list[bytes]:
    handle = await client.open(ledger_id, OPTIONS.password)
    out: list[bytes] = []
    while len(out) <= handle.last_entry:
        out += [entry.payload for entry in await handle.read(len(out), handle.last_entry, 1 << 20)]
    return out


async def until(cluster: BookieNodes, ledger_id: int, condition: Callable[[LedgerMetadata], bool]) -> None:
    """Waits until the ledger's metadata are so and no mark of it is left."""
    news = asyncio.Event()
    cancel = cluster.store.watch("/ledgers", lambda _: news.set())
    async with asyncio.timeout(30):
        while True:
            news.clear()
            stored = await cluster.registry.read(ledger_id)
            marked = await cluster.store.children("/ledgers/underreplication/ledgers/0000")
            if condition(stored.metadata) and not marked:
                break
            await news.wait()
    cancel()


async def elected(cluster: BookieNodes, node_id: str) -> None:
    """Waits until the node is the auditor."""
    paths = UnderreplicationPaths(cluster.tree)
    news = asyncio.Event()
    cancel = cluster.store.watch(paths.election, lambda _: news.set())
    async with asyncio.timeout(30):
        while True:
            news.clear()
            value = await cluster.store.get(paths.election)
            if value is not None and value.data == encode_vote(node_id):
                break
            await news.wait()
    cancel()


def checks_of(cluster: BookieNodes, check: AuditCheck) -> Callable[[], Awaitable[None]]:
    """What waits for the next check of all ledgers to end."""
    ended = asyncio.Event()
    cluster.store.watch(UnderreplicationPaths(cluster.tree).checked(check), lambda _: ended.set())

    async def next_one() -> None:
        async with asyncio.timeout(30):
            await ended.wait()
        ended.clear()

    return next_one


def name_of(cluster: BookieNodes, bookie_id: str) -> str:
    return next(name for name, node in cluster.nodes.items() if node.bookie_id == bookie_id)


def holders(metadata: LedgerMetadata) -> set[str]:
    return {bookie for _, members in metadata.ensembles for bookie in members}


def test_what_a_lost_bookie_held_is_on_others_soon(tmp_path: Path) -> None:
    async def story() -> None:
        async with bookie_nodes(tmp_path, 5) as cluster, client_of(cluster) as client:
            writer, payloads = await write(client, 200)
            await writer.close()
            members = writer.metadata.ensembles[0][1]
            async with recovering(cluster) as node:
                await cluster.stop(name_of(cluster, members[1]))
                await until(cluster, writer.ledger_id, lambda metadata: members[1] not in holders(metadata))
                assert node.auditor.is_elected
                assert node.replicator.entries_copied == 134
            # Every entry has two copies again: one more bookie may go.
            await cluster.stop(name_of(cluster, members[0]))
            assert await read(client, writer.ledger_id) == payloads

    asyncio.run(story())


def test_an_open_ledger_is_closed_when_its_writer_does_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with bookie_nodes(tmp_path, 4) as cluster, client_of(cluster) as client:
            writer, payloads = await write(client, 30)
            members = writer.metadata.ensembles[0][1]
            async with recovering(cluster):
                await cluster.stop(name_of(cluster, members[2]))

                def repaired(metadata: LedgerMetadata) -> bool:
                    return metadata.state is LedgerState.CLOSED and members[2] not in holders(metadata)

                await until(cluster, writer.ledger_id, repaired)
            stored = await cluster.registry.read(writer.ledger_id)
            assert stored.metadata.end == LedgerEnd(29, sum(map(len, payloads)))
            assert await read(client, writer.ledger_id) == payloads

    asyncio.run(story())


def test_a_bookie_that_lacks_its_entries_gets_them_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with bookie_nodes(tmp_path, 4) as cluster, client_of(cluster) as client:
            writer, payloads = await write(client, 40)
            await writer.close()
            stored = await cluster.registry.read(writer.ledger_id)
            ((_, members),) = stored.metadata.ensembles
            every = {node.bookie_id for node in cluster.nodes.values()}
            (spare,) = every - set(members)
            # As if it had lost its disk: the metadata say that it has entries which it never got.
            wrong = stored.metadata.with_ensembles(((0, (spare, *members[1:])),))
            await cluster.registry.write(writer.ledger_id, wrong, stored.version)
            checked = checks_of(cluster, AuditCheck.SAMPLES)
            async with recovering(cluster, check_all_s=0.2) as node:
                await checked()
                await until(cluster, writer.ledger_id, lambda metadata: metadata.ensembles == wrong.ensembles)
                assert node.worker.repaired >= 1
            # The spare one has, of every third entry, the only copy that is left.
            await cluster.stop(name_of(cluster, members[1]))
            assert await read(client, writer.ledger_id) == payloads

    asyncio.run(story())


def test_every_entry_that_a_bookie_lacks_is_found_by_its_list(tmp_path: Path) -> None:
    async def story() -> None:
        async with bookie_nodes(tmp_path, 4) as cluster, client_of(cluster) as client:
            writer, payloads = await write(client, 60)
            await writer.close()
            stored = await cluster.registry.read(writer.ledger_id)
            ((_, members),) = stored.metadata.ensembles
            every = {node.bookie_id for node in cluster.nodes.values()}
            (spare,) = every - set(members)
            wrong = stored.metadata.with_ensembles(((0, (spare, *members[1:])),))
            stored = await cluster.registry.write(writer.ledger_id, wrong, stored.version)
            # It has the first and the last entry of its place: a sample finds nothing.
            (fragment,) = fragments_of(wrong)
            bounds = fragment.bounds(0)
            lack = Lack(fragment, {0: spare}, {0: bounds})
            await Replicator(client.cluster).repair(stored, lack, frozenset(every))
            checked = checks_of(cluster, AuditCheck.REPLICAS)
            async with recovering(cluster, check_replicas_s=0.2) as node:
                await checked()
                await until(cluster, writer.ledger_id, lambda metadata: metadata.ensembles == wrong.ensembles)
                assert node.replicator.entries_copied == fragment.count(0) - len(bounds)
                while node.checks.counts.below_ack_quorum:
                    await checked()
            await cluster.stop(name_of(cluster, members[1]))
            assert await read(client, writer.ledger_id) == payloads

    asyncio.run(story())


def test_copies_move_where_they_stand_in_one_rack(tmp_path: Path) -> None:
    async def story() -> None:
        async with bookie_nodes(tmp_path, 4) as cluster, client_of(cluster) as client:
            writer, payloads = await write(client, 60)
            await writer.close()
            members = writer.metadata.ensembles[0][1]
            every = {node.bookie_id for node in cluster.nodes.values()}
            (spare,) = every - set(members)
            racks = {bookie: {"rack": "/b" if bookie == spare else "/a"} for bookie in sorted(every)}
            await cluster.store.put(BOOKIE_RACKS, json.dumps({"default": racks}).encode())
            checked = checks_of(cluster, AuditCheck.PLACEMENT)
            async with recovering(cluster, check_placement_s=0.2) as node:
                await checked()
                await until(cluster, writer.ledger_id, lambda metadata: spare in holders(metadata))
                assert node.worker.placed == 1
                # One row of neighbours of E3 Qw2 is still in one rack, which no choice of bookies can avoid.
                assert node.checks.counts.not_adhering == 1
            (gone,) = set(members) - holders((await cluster.registry.read(writer.ledger_id)).metadata)
            await cluster.stop(name_of(cluster, gone))
            assert await read(client, writer.ledger_id) == payloads

    asyncio.run(story())


def test_a_bookie_is_taken_out_for_good(tmp_path: Path) -> None:
    async def story() -> None:
        async with bookie_nodes(tmp_path, 4) as cluster, client_of(cluster) as client:
            ledgers = [await write(client, 20) for _ in range(3)]
            for writer, _ in ledgers[1:]:
                await writer.close()
            member = ledgers[0][0].metadata.ensembles[0][1][0]
            async with recovering(cluster) as node:
                work = Decommission(cluster.registry, cluster.bookies, node.marks, member, look_s=0.05)
                told: list[int] = []
                with pytest.raises(DecommissionError, match="is up"):
                    await work.run(told.append)
                await cluster.stop(name_of(cluster, member))
                await asyncio.wait_for(work.run(told.append), 30)
                assert told[-1] == 0
                assert member not in await cluster.bookies.known_bookies()
                with pytest.raises(DecommissionError, match="known"):
                    await work.run(told.append)
            for writer, payloads in ledgers:
                assert member not in holders((await cluster.registry.read(writer.ledger_id)).metadata)
                assert await read(client, writer.ledger_id) == payloads

    asyncio.run(story())


def test_bookies_that_ask_for_tls_and_a_password_are_repaired(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("bookie")
    users, password = tmp_path / "users", tmp_path / "password"
    users.write_text("bookkeeper:secret\n")
    password.write_text("secret\n")
    said = BookieSecurity(tls_certificate=certificate, tls_key=key, tls_required=True, users=users)
    server = ServerOptions(tls=said.tls(), access=said.access())
    access = client_options(
        LedgerSettings(
            bookie_tls=True,
            bookie_tls_ca=authority.file,
            bookie_user="bookkeeper",
            bookie_password=password,
        )
    )

    async def story() -> None:
        async with bookie_nodes(tmp_path, 0) as cluster, client_of(cluster, access) as client:
            for name in "abcd":
                await cluster.start(name, server)
            writer, payloads = await write(client, 40)
            await writer.close()
            members = writer.metadata.ensembles[0][1]
            async with recovering(cluster, access=access) as node:
                await cluster.stop(name_of(cluster, members[1]))
                await until(cluster, writer.ledger_id, lambda metadata: members[1] not in holders(metadata))
                # Also where a list of entries is asked for: nothing is missing.
                await node.marks.mark(writer.ledger_id, frozenset({members[0]}))
                await until(cluster, writer.ledger_id, lambda _: True)
                assert node.replicator.entries_copied == 27
            assert await read(client, writer.ledger_id) == payloads

    asyncio.run(story())


def test_damaged_racks_keep_nobody_from_repairing(tmp_path: Path) -> None:
    async def story() -> None:
        async with bookie_nodes(tmp_path, 4) as cluster, client_of(cluster) as client:
            writer, _ = await write(client, 20)
            await writer.close()
            member = writer.metadata.ensembles[0][1][0]
            await cluster.store.put(BOOKIE_RACKS, b'{"default": 7}')
            async with recovering(cluster):
                await cluster.stop(name_of(cluster, member))
                await until(cluster, writer.ledger_id, lambda metadata: member not in holders(metadata))

    asyncio.run(story())


def test_nothing_happens_while_it_is_disabled(tmp_path: Path) -> None:
    async def story() -> None:
        async with bookie_nodes(tmp_path, 4) as cluster, client_of(cluster) as client:
            writer, payloads = await write(client, 20)
            await writer.close()
            member = writer.metadata.ensembles[0][1][0]
            paths = UnderreplicationPaths(cluster.tree)
            await cluster.store.put(paths.disable, b"")
            async with recovering(cluster) as node:
                await cluster.stop(name_of(cluster, member))
                await node.marks.mark(writer.ledger_id, frozenset({member}))
                await elected(cluster, "node")
                assert await node.marks.locked() == frozenset()
                assert member in holders((await cluster.registry.read(writer.ledger_id)).metadata)
                await cluster.store.delete(paths.disable)
                await until(cluster, writer.ledger_id, lambda metadata: member not in holders(metadata))
            assert await read(client, writer.ledger_id) == payloads

    asyncio.run(story())


def test_another_node_takes_the_office_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with bookie_nodes(tmp_path, 1) as cluster, AsyncExitStack() as stack:
            async with recovering(cluster, "first"):
                await elected(cluster, "first")
                second = await stack.enter_async_context(recovering(cluster, "second"))
                assert await second.election.auditor() == "first"
            await elected(cluster, "second")
            assert await second.election.auditor() == "second"

    asyncio.run(story())


def command(folder: Path) -> list[str]:
    words = [
        sys.executable,
        "-m",
        "magnetar",
        "autorecovery",
        "--metadata",
        f"sqlite:{folder / 'metadata.db'}",
    ]
    return [*words, "--id", "node", "--ready-file", str(folder / "ready.json"), "--http-port", "0"]


def initialize(folder: Path) -> None:
    async def body() -> None:
        store = EmbeddedMetadataStore.open(folder / "metadata.db", clock=ManualClock(), durable=False)
        await initialize_cluster(store, BookKeeperTree(), "cluster")
        await store.close()

    asyncio.run(body())


@pytest.mark.process
def test_the_process_starts_and_ends_when_asked(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    missing = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=60)
    assert missing.returncode != 0
    assert "no cluster was initialized here" in missing.stderr
    initialize(tmp_path)
    process = subprocess.Popen(command(tmp_path), stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, 60, "auto-recovery is ready")
        port = json.loads(ready.read_text())["http_port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/heartbeat", timeout=30) as answer:
            assert answer.read() == b"OK\n"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "auto-recovery node is ready" in out
    assert not ready.exists()


@pytest.mark.process
def test_the_process_reads_its_credentials_again_on_sighup(tmp_path: Path) -> None:
    initialize(tmp_path)
    ready, log, password = tmp_path / "ready.json", tmp_path / "log", tmp_path / "password"
    password.write_text("old")
    password.chmod(0o600)
    shown = ["--bookie-user", "repairs", "--bookie-password", str(password)]
    with log.open("wb") as out:
        process = subprocess.Popen([*command(tmp_path), *shown], stdout=out, stderr=out)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, 60, "auto-recovery is ready")
        password.unlink()
        process.send_signal(signal.SIGHUP)
        told = "password for bookies cannot be read again, the old ones stay in force"
        wait_until(lambda: told in log.read_text() or process.poll() is not None, 60, "it looks for the file")
        password.write_text("new")
        process.send_signal(signal.SIGHUP)
        again = "credentials: password for bookies read again"
        wait_until(lambda: again in log.read_text() or process.poll() is not None, 60, "it reads the file")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()

"""Steps of `./dev compat bookkeeper` that take too long, or too much memory, for the tests."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from magnetar.base.errors import MagnetarError
from magnetar.ledger.api import LedgerFencedError
from magnetar.ledger.autorecovery.node import AutoRecoveryNode
from magnetar.ledger.autorecovery.recovery_options import RecoveryOptions
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerHandle, LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.cluster import open_tree
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.opening import open_metadata, parse_metadata_url
from magnetar.runtime.clock import SystemClock
from support.apache_bookkeeper import ApacheBookieProcess, ApacheBookKeeper
from support.bookie_process import BookieProcess
from support.ledger_clusters import Marks

_T = TypeVar("_T")

PATIENT = LedgerClientOptions(answer_timeout_s=3.0, replacement_wait_s=90.0)
"""For ensembles without a spare bookie: a bookie that is away is waited for, not replaced."""
WAIT_S = 150.0


@asynccontextmanager
async def session_of(url: str) -> AsyncIterator[tuple[TreeLedgerRegistry, TreeBookieRegistry]]:
    """The metadata of a cluster."""
    found = parse_metadata_url(url)
    async with AsyncExitStack() as stack:
        store = await open_metadata(found, SystemClock())
        stack.push_async_callback(store.close)
        tree = await open_tree(store, found.root)
        bookies = TreeBookieRegistry(store, tree)
        stack.push_async_callback(bookies.close)
        yield TreeLedgerRegistry(store, tree), bookies


@asynccontextmanager
async def client_of(url: str, options: LedgerClientOptions) -> AsyncIterator[LedgerClient]:
    """A client with a session and connections of its own."""
    async with session_of(url) as (ledgers, bookies):
        client = LedgerClient(Cluster(ledgers, bookies, options))
        try:
            yield client
        finally:
            await client.close()


async def payloads_of(handle: LedgerHandle) -> list[bytes]:
    """Everything in a ledger that is closed."""
    out: list[bytes] = []
    while len(out) <= handle.last_entry:
        out += [entry.payload for entry in await handle.read(len(out), handle.last_entry, 1 << 20)]
    return out


async def until_it_goes(action: Callable[[], Awaitable[_T]]) -> _T:
    """Tries again while a bookie that is needed is away."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return await action()
        except MagnetarError as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"still not after {WAIT_S:.0f} s: {error}") from error
            await asyncio.sleep(0.5)


async def both_kinds(apache: ApacheBookKeeper, folder: Path, theirs: int, seed: int, minutes: float) -> str:
    """Three bookies, so many of them Apache's, each a process; all three are in every acknowledgement, and
    one is killed again and again."""
    root = f"/both-{theirs}"
    url = f"zk://{apache.zookeeper}{root}"
    chance = random.Random(seed)
    with ExitStack() as stack:
        running: list[BookieProcess | ApacheBookieProcess] = []
        running += [BookieProcess(folder / f"{theirs}-{each}", url) for each in range(3 - theirs)]
        for bookie in running:
            bookie.begin()
            stack.callback(bookie.kill)
            bookie.wait()
        for each in range(theirs):
            process = apache.bookie_process(f"killed-{theirs}-{each}", root)
            process.begin()
            stack.callback(process.kill)
            process.wait()
            running.append(process)
        kills = [0, 0]
        ending = asyncio.Event()

        async def kill_again_and_again() -> None:
            while not ending.is_set():
                victim = chance.choice(running)
                await asyncio.to_thread(victim.kill)
                kills[isinstance(victim, ApacheBookieProcess)] += 1
                await asyncio.sleep(chance.uniform(0.2, 2.0))
                await asyncio.to_thread(victim.begin)
                await asyncio.to_thread(victim.wait)
                await asyncio.sleep(chance.uniform(1.0, 4.0))

        killing = asyncio.create_task(kill_again_and_again())
        end = time.monotonic() + minutes * 60
        ledgers = entries = 0
        try:
            while time.monotonic() < end and not killing.done():
                entries += await _one_ledger(url, chance)
                ledgers += 1
        finally:
            ending.set()
            await killing
    return (
        f"{theirs} of Apache's and {3 - theirs} of ours, E3 Qw3 Qa3, seed {seed}: {ledgers} ledgers taken"
        f" over, {entries} acknowledged entries found, {kills[1]} kills of theirs and {kills[0]} of ours"
    )


async def _one_ledger(url: str, chance: random.Random) -> int:
    """Writes a ledger for some seconds, takes it over, reads everything; how many entries."""
    options = replace(PATIENT, use_v2=chance.random() < 0.5)
    async with client_of(url, options) as writing, client_of(url, options) as taking:
        marks = Marks()
        layout = LedgerOptions(layout=QuorumLayout(3, 3, 3))
        writer = await until_it_goes(lambda: writing.create(layout, marks))
        written: list[bytes] = []
        end = time.monotonic() + 10.0
        while time.monotonic() < end:
            vector = [chance.randbytes(chance.randint(0, 2_000)) for _ in range(chance.randint(1, 50))]
            writer.append(vector)
            written += vector
            await marks.reach(len(written) - 1, WAIT_S)
        reader = await until_it_goes(lambda: taking.open(writer.ledger_id))
        assert reader.last_entry == len(written) - 1
        assert await until_it_goes(lambda: payloads_of(reader)) == written
    return len(written)


async def local_bookkeeper(apache: ApacheBookKeeper) -> str:
    """Our client over what `localbookie 3` starts: writes, loses a bookie, is fenced, all is read back."""
    apache.start_local(3)
    url = f"zk://{apache.zookeeper}/ledgers"
    changes = found = 0
    for use_v2 in (True, False):
        # A fourth bookie, to replace the one that goes.
        await asyncio.to_thread(apache.change_local, by=1)
        options = LedgerClientOptions(use_v2=use_v2, answer_timeout_s=3.0)
        async with (
            session_of(url) as (_, bookies),
            client_of(url, options) as writing,
            client_of(url, options) as taking,
        ):
            marks = [Marks() for _ in range(8)]
            layout = LedgerOptions(layout=QuorumLayout(3, 3, 2))
            writers = [await writing.create(layout, each) for each in marks]
            written = [[b"entry %d" % number for number in range(200)] for _ in writers]
            for writer, entries in zip(writers, written, strict=True):
                writer.append(entries)
            for mark in marks:
                await mark.reach(199, WAIT_S)
            await asyncio.to_thread(apache.change_local, by=-1)
            live = (await bookies.bookies()).all()
            for writer, mark, entries in zip(writers, marks, written, strict=True):
                gone = set(writer.metadata.ensembles[0][1]) - live
                while len(writer.metadata.ensembles) == 1 and gone:
                    entries += [b"more"] * 10
                    writer.append([b"more"] * 10)
                    await mark.reach(len(entries) - 1, WAIT_S)
                changes += len(writer.metadata.ensembles) - 1
                await mark.reach(len(entries) - 1, WAIT_S)
                handle = await until_it_goes(partial(taking.open, writer.ledger_id))
                assert handle.last_entry == len(entries) - 1
                assert await payloads_of(handle) == entries
                found += len(entries)
                writer.append([b"too late"])
                try:
                    await mark.reach(len(entries))
                except LedgerFencedError:
                    continue
                raise AssertionError("a writer goes on after its ledger was taken over")
    await asyncio.to_thread(apache.stop_local)
    return (
        f"localbookie 3, versions 2 and 3: 16 ledgers fenced and recovered, {found} entries found, "
        f"{changes} changes of ensembles when a bookie went"
    )


async def decommission(apache: ApacheBookKeeper, folder: Path) -> str:
    """Apache's `decommissionbookie` takes one of our bookies out, auto-recovery of ours copies."""
    root = "/decommissioned"
    url = f"zk://{apache.zookeeper}{root}"
    with ExitStack() as stack:
        running = [BookieProcess(folder / f"decommissioned-{each}", url) for each in range(4)]
        for bookie in running:
            stack.callback(bookie.stop)
            bookie.begin()
        for bookie in running:
            bookie.wait()
        found = parse_metadata_url(url)
        store = await open_metadata(found, SystemClock())
        tree = await open_tree(store, found.root)
        node = await AutoRecoveryNode.start(
            store, tree, SystemClock(), RecoveryOptions(node_id="ours", lost_bookie_delay_s=3600)
        )
        async with client_of(url, LedgerClientOptions()) as client:
            ledgers = []
            for _ in range(10):
                marks = Marks()
                writer = await client.create(LedgerOptions(layout=QuorumLayout(3, 2, 2)), marks)
                writer.append([b"entry %d" % number for number in range(100)])
                await writer.close()
                ledgers.append(writer.ledger_id)
            gone = running[0]
            gone.stop()
            await asyncio.to_thread(
                lambda: apache.shell("decommissionbookie", "-bookieid", gone.bookie_id, root=root)
            )
            for ledger_id in ledgers:
                stored = await client.cluster.ledgers.read(ledger_id)
                assert all(gone.bookie_id not in members for _, members in stored.metadata.ensembles)
                assert len(await payloads_of(await client.open(ledger_id))) == 100
        assert gone.bookie_id not in await store.children(tree.cookies)
        await node.close()
        await store.close()
    return f"decommissionbookie: {len(ledgers)} ledgers have no copy on a bookie of ours, its cookie is gone"

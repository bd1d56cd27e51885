"""`magnetar doctor storage check-cluster`: what no bookie has is found, and what one does not tell is no
loss."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.base.ids import LedgerId
from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.managedlog.log_metadata import LedgerRecord, LogMetadata, encode, log_path
from magnetar.server.storage.cluster_doctor import ClusterDoctor, ClusterReport, MissingEntries
from magnetar.server.storage.cluster_losses import accept_loss
from support.bookie_nodes import BookieNodes, bookie_nodes
from support.ledger_clusters import Marks

pytestmark = pytest.mark.one_process("own")

TOPIC = "public/default/persistent/orders"
ENTRIES = 20
THREE = QuorumLayout(3, 3, 2)


async def ledger_of_orders(nodes: BookieNodes, *, last: int = ENTRIES - 1) -> LedgerId:
    """A closed ledger with entries 0 to 19, in the list of a topic. `last`: what the metadata says."""
    client, marks = LedgerClient(Cluster(nodes.registry, nodes.bookies)), Marks()
    writer = await client.create(LedgerOptions(layout=THREE), marks)
    for number in range(ENTRIES):
        writer.append([b"%d" % number])
    await marks.reach(ENTRIES - 1)
    await writer.close()
    await client.close()
    stored = await nodes.registry.read(writer.ledger_id)
    assert stored.metadata.end is not None
    longer = replace(stored.metadata, end=LedgerEnd(last, stored.metadata.end.length_bytes))
    await nodes.registry.write(writer.ledger_id, longer, stored.version)
    record = LedgerRecord(writer.ledger_id, entries=last + 1, size_bytes=100, timestamp_ms=1)
    await nodes.store.put(log_path(TOPIC), encode(LogMetadata((record,))))
    return writer.ledger_id


async def checked(nodes: BookieNodes) -> ClusterReport:
    options = LedgerClientOptions()
    return await ClusterDoctor(nodes.store, nodes.registry, nodes.bookies, options).check()


def run(folder: Path, story: Callable[[BookieNodes], Awaitable[None]]) -> None:
    async def main() -> None:
        async with bookie_nodes(folder) as nodes, asyncio.timeout(120):
            await story(nodes)

    asyncio.run(main())


def test_what_one_bookie_has_is_not_lost(tmp_path: Path) -> None:
    async def story(nodes: BookieNodes) -> None:
        await ledger_of_orders(nodes)
        await nodes.stop("a")
        await nodes.stop("b")
        report = await checked(nodes)
        assert report.is_good
        assert (report.topics, report.ledgers, report.entries) == (1, 1, ENTRIES)

    run(tmp_path, story)


def test_what_no_bookie_has_is_lost_until_it_is_given_up(tmp_path: Path) -> None:
    async def story(nodes: BookieNodes) -> None:
        ledger_id = await ledger_of_orders(nodes, last=ENTRIES + 1)
        report = await checked(nodes)
        lost = MissingEntries(TOPIC, ledger_id, ENTRIES, ENTRIES + 1)
        assert (report.lost, report.unclear) == ([lost], [])
        assert report.undecided == [lost]
        await accept_loss(nodes.store, ledger_id, ENTRIES, ENTRIES + 1)
        report = await checked(nodes)
        assert report.lost == [replace(lost, given_up=True)]
        assert not report.undecided

    run(tmp_path, story)


def test_what_a_bookie_does_not_tell_is_not_lost(tmp_path: Path) -> None:
    """It may have what the others lack."""

    async def story(nodes: BookieNodes) -> None:
        await ledger_of_orders(nodes, last=ENTRIES)
        await nodes.stop("a")
        report = await checked(nodes)
        assert not report.lost
        (unclear,) = report.unclear
        assert (unclear.topic, unclear.first, unclear.last) == (TOPIC, ENTRIES, ENTRIES)
        assert "gave a copy" in unclear.reason

    run(tmp_path, story)


def test_a_ledger_that_is_gone_is_lost_whole(tmp_path: Path) -> None:
    async def story(nodes: BookieNodes) -> None:
        ledger_id = await ledger_of_orders(nodes)
        await nodes.registry.delete(ledger_id)
        report = await checked(nodes)
        assert report.lost == [MissingEntries(TOPIC, ledger_id, 0, ENTRIES - 1)]

    run(tmp_path, story)

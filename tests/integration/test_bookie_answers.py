"""Answers of a bookie are made as its client takes them, also where the reads had to wait for something."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar.bookie.network.outflow import Outflow
from magnetar.bookie.network.server import ServerOptions
from magnetar.wire.bookkeeper.bookie_client import encode_request
from magnetar.wire.bookkeeper.requests import AddRun, Read, StartTls
from support.bookie_nodes import BookieNodes, bookie_nodes
from support.waiting import eventually

pytestmark = pytest.mark.one_process("own")

LEDGER, KEY = 7, bytes(20)
ENTRY_BYTES = 100_000
READS = 400
ADDED_BYTES = 28
"""An answer to an add, with its length."""
UNSENT_MAX = 3 << 20


def run(
    folder: Path, story: Callable[[BookieNodes], Awaitable[None]], server: ServerOptions | None = None
) -> None:
    async def main() -> None:
        async with bookie_nodes(folder, 0) as nodes:
            await nodes.start("a", server)
            await story(nodes)

    asyncio.run(main())


def entry(entry_id: int) -> bytes:
    """An add; each entry says that those before it are confirmed."""
    added = AddRun(LEDGER, KEY)
    head = b"".join(number.to_bytes(8, "big", signed=True) for number in (LEDGER, entry_id, entry_id - 1))
    added.entry_ids, added.entries = [entry_id], [head + bytes(ENTRY_BYTES)]
    return b"".join(encode_request(added, is_v2=True))


async def client(nodes: BookieNodes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", nodes.nodes["a"].port)


async def write(nodes: BookieNodes, *entry_ids: int) -> None:
    reader, writer = await client(nodes)
    for entry_id in entry_ids:
        writer.write(entry(entry_id))
        await asyncio.wait_for(reader.readexactly(ADDED_BYTES), 30)
    writer.close()


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that were under way to all clients, after each answer."""
    seen = [0]
    add = Outflow.add

    def added(self: Outflow, client: object, size: int, now_s: float) -> None:
        add(self, client, size, now_s)
        seen.append(self.total)

    monkeypatch.setattr(Outflow, "add", added)
    return seen


async def gets_all(reader: asyncio.StreamReader) -> None:
    left = READS * ENTRY_BYTES
    while left > 0:
        more = await asyncio.wait_for(reader.read(1 << 20), 30)
        assert more, "the bookie went away"
        left -= len(more)


def test_reads_of_a_ledger_whose_index_is_loaded(tmp_path: Path, most: list[int]) -> None:
    async def story(nodes: BookieNodes) -> None:
        await write(nodes, 0)
        await nodes.stop("a")
        await nodes.start("a")
        reader, writer = await client(nodes)
        writer.write(b"".join(encode_request(Read(LEDGER, 0), is_v2=True)) * READS)
        await gets_all(reader)
        writer.close()

    run(tmp_path, story)
    assert max(most) < UNSENT_MAX


def test_reads_that_wait_for_a_fence(tmp_path: Path, most: list[int]) -> None:
    async def story(nodes: BookieNodes) -> None:
        await write(nodes, 0)
        reader, writer = await client(nodes)
        fencing = Read(LEDGER, 0, fence=True, master_key=KEY)
        writer.write(b"".join(encode_request(fencing, is_v2=True)) * READS)
        await gets_all(reader)
        writer.close()

    run(tmp_path, story)
    assert max(most) < UNSENT_MAX


@pytest.mark.parametrize("grows", [True, False], ids=["the ledger grows", "their time is over"])
def test_reads_that_wait_for_the_ledger_to_grow(tmp_path: Path, most: list[int], grows: bool) -> None:
    async def story(nodes: BookieNodes) -> None:
        await write(nodes, 0, 1)
        reader, writer = await client(nodes)
        for number in range(READS):
            waiting = Read(LEDGER, 0, number, previous_lac=0, timeout_ms=60_000 if grows else 100)
            writer.write(b"".join(encode_request(waiting, is_v2=False)))
        await writer.drain()
        if grows:
            tail = nodes.nodes["a"].server.ledgers._ledgers[LEDGER].tail
            await eventually(lambda: len(tail.waiting) == READS)
            await write(nodes, 2)
        await gets_all(reader)
        writer.close()

    run(tmp_path, story)
    assert max(most) < UNSENT_MAX


def test_what_follows_start_tls_in_clear_is_not_handled_after_waiting_reads(tmp_path: Path) -> None:
    """The requests waited behind reads, START_TLS among them, and were not held against it any more."""

    async def story(nodes: BookieNodes) -> None:
        await write(nodes, 0)
        reader, writer = await client(nodes)
        # The first answer says that the bookie reads large packets by now.
        writer.write(b"".join(encode_request(Read(LEDGER, 5, 0), is_v2=False)))
        await asyncio.wait_for(reader.read(1 << 16), 30)
        said = [*(Read(LEDGER, 0, number) for number in range(60)), StartTls(60), Read(LEDGER, 0, 61)]
        writer.write(b"".join(piece for each in said for piece in encode_request(each, is_v2=False)))
        with contextlib.suppress(ConnectionResetError):
            while await asyncio.wait_for(reader.read(1 << 20), 30):
                pass
        writer.close()
        (server,) = [node.server for node in nodes.nodes.values()]
        await eventually(lambda: not server.connections)

    run(tmp_path, story, ServerOptions(tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)))

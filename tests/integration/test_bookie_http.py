"""HTTP admin and metrics of a bookie, over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from magnetar.bookie.network.access import Access
from magnetar.bookie.network.server import ServerOptions
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.observability.catalogue import METRICS
from magnetar.observability.metrics import Kind
from magnetar.server.bookies.bookie_http import BookieHttp
from magnetar.server.bookies.bookie_pages import BookiePages
from support.bookie_nodes import BookieNodes, bookie_nodes
from support.bookie_pages import PageCaller
from support.ledger_clusters import Marks

pytestmark = pytest.mark.one_process("own")

API = "/api/v1/bookie"


class Caller(PageCaller):
    """Asks the HTTP port of bookie `a`."""

    def __init__(self, nodes: BookieNodes, port: int) -> None:
        super().__init__(port)
        self.nodes = nodes


def run(folder: Path, story: Callable[[Caller], Awaitable[None]]) -> None:
    async def main() -> None:
        async with bookie_nodes(folder, 1) as nodes:
            http = await BookieHttp.start(BookiePages(nodes.nodes["a"], nodes.bookies), "127.0.0.1", 0)
            try:
                await story(Caller(nodes, http.port))
            finally:
                await http.stop()

    asyncio.run(main())


def test_pages_that_tools_ask_for(tmp_path: Path) -> None:
    async def story(caller: Caller) -> None:
        node = caller.nodes.nodes["a"]
        assert await caller.call("/heartbeat") == (200, "OK\n")
        assert await caller.call(f"{API}/is_ready") == (200, "")
        info = await caller.json(f"{API}/info")
        assert 0 < info["freeSpace"] <= info["totalSpace"]
        assert await caller.json(f"{API}/state") == {
            "running": True,
            "readOnly": False,
            "shuttingDown": False,
            "availableForHighPriorityWrites": True,
        }
        files = await caller.json(f"{API}/list_disk_file?file_type=entrylog")
        assert list(files) == ["entrylog files"]
        assert ".seg\t" in files["entrylog files"]
        assert list(await caller.json(f"{API}/list_disk_file")) == [
            "journal files",
            "entrylog files",
            "index files",
        ]
        assert await caller.json(f"{API}/list_bookies") == {node.bookie_id: None}
        assert await caller.json(f"{API}/list_bookies?type=ro") == {}
        named = await caller.json(f"{API}/list_bookies?type=rw&print_hostnames=true")
        assert named == {node.bookie_id: "127.0.0.1"}
        assert "Triggered GC" in await caller.json(f"{API}/gc", "PUT")
        assert list(await caller.json(f"{API}/gc")) == ["is_in_force_gc"]
        assert (await caller.call("/heartbeat", "POST"))[0] == 404
        assert (await caller.call("/elsewhere"))[0] == 404
        assert (await caller.call(f"{API}/gc", "PUT", b"x" * 5_000))[0] == 413

    run(tmp_path, story)


def test_a_bookie_that_is_asked_to_takes_no_more(tmp_path: Path) -> None:
    async def story(caller: Caller) -> None:
        node = caller.nodes.nodes["a"]
        page = f"{API}/state/readonly"
        assert await caller.json(page, "PUT", b'{"readOnly": true}') == {"readOnly": True}
        assert (await caller.nodes.bookies.bookies()).read_only == {node.bookie_id}
        await node.look_at_disk()
        assert await caller.json(page) == {"readOnly": True}
        assert await caller.json(page, "PUT", b'{"readOnly": false}') == {"readOnly": False}
        assert (await caller.nodes.bookies.bookies()).writable == {node.bookie_id}
        for wrong in (b"", b"[]", b'{"readOnly": 1}', b"[" * 4_000):
            assert (await caller.call(page, "PUT", wrong))[0] == 400

    run(tmp_path, story)


@pytest.mark.parametrize(
    "access",
    [Access(users={"broker": "secret"}), Access(tls_required=True), Access(roles=frozenset({"broker"}))],
    ids=["a password", "TLS", "a certificate"],
)
def test_changes_where_clients_must_show_something(tmp_path: Path, access: Access) -> None:
    """Callers show nothing, so a program that reached the port could make the bookie read-only."""

    async def main() -> None:
        async with bookie_nodes(tmp_path, 0) as nodes:
            await nodes.start("a", ServerOptions(access=access))
            node = nodes.nodes["a"]
            await changes(nodes, allowed=False)
            assert not node.read_only
            await changes(nodes, allowed=True)
            assert node.read_only

    asyncio.run(main())


async def changes(nodes: BookieNodes, *, allowed: bool) -> None:
    pages = BookiePages(nodes.nodes["a"], nodes.bookies, changes=allowed)
    http = await BookieHttp.start(pages, "127.0.0.1", 0)
    try:
        caller = PageCaller(http.port)
        for path, body in ((f"{API}/state/readonly", b'{"readOnly": true}'), (f"{API}/gc", b"")):
            status, text = await caller.call(path, "PUT", body)
            assert status == (200 if allowed else 403)
            assert ("--http-changes" in text) is not allowed
        # Whatever changes nothing is answered, as before.
        for path in ("/heartbeat", "/metrics", f"{API}/state", f"{API}/gc", f"{API}/state/readonly"):
            assert (await caller.call(path))[0] == 200
        assert (await caller.call("/elsewhere", "PUT"))[0] == 404
    finally:
        await http.stop()


def test_metrics_count_what_clients_ask(tmp_path: Path) -> None:
    async def story(caller: Caller) -> None:
        client = LedgerClient(Cluster(caller.nodes.registry, caller.nodes.bookies))
        marks = Marks()
        writer = await client.create(LedgerOptions(layout=QuorumLayout(1, 1, 1)), marks)
        writer.append([b"x" * 100 for _ in range(20)])
        await marks.reach(19)
        assert len(await writer.read(0, 9, 1 << 20)) == 10
        _, text = await caller.call("/metrics")
        await client.close()
        families = {family.name: family for family in text_string_to_metric_families(text)}
        shown = {name if name in METRICS else f"{name}_total" for name in families}
        bookies = {name for name, metric in METRICS.items() if "magnetar bookie" in metric.only}
        assert shown <= METRICS.keys()
        assert bookies <= shown
        for name in bookies:
            assert families[name].type == METRICS[name].kind.value
            assert families[name].documentation == METRICS[name].help
            for sample in families[name].samples:
                assert METRICS[name].kind is Kind.HISTOGRAM or set(sample.labels) == set(METRICS[name].labels)

        def value(name: str, **labels: str) -> float:
            return next(each.value for each in families[name].samples if each.labels == labels)

        assert value("bookkeeper_server_ADD_ENTRY_count", success="true") == 20
        assert value("bookkeeper_server_ADD_ENTRY_count", success="false") == 0
        assert value("bookkeeper_server_READ_ENTRY_count", success="true") >= 1
        assert value("bookie_WRITE_BYTES") > 2_000
        assert value("bookie_READ_BYTES") > 1_000
        assert value("bookie_SERVER_STATUS") == 1
        assert value("bookie_ledgers_count") == 1
        assert value("magnetar_bookie_connections") >= 1

    run(tmp_path, story)

"""HTTP admin and metrics of a node of auto-recovery."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from magnetar.ledger.autorecovery.node import AutoRecoveryNode
from magnetar.ledger.autorecovery.recovery_options import RecoveryOptions
from magnetar.observability.recovery_rows import AUTORECOVERY
from magnetar.server.bookies.autorecovery import AutoRecoveryConfig
from magnetar.server.bookies.autorecovery_pages import AutoRecoveryPages
from magnetar.server.bookies.bookie_http import BookieHttp
from magnetar.server.settings.ledger_settings import LedgerSettings
from support.bookie_nodes import bookie_nodes
from support.bookie_pages import PageCaller

pytestmark = pytest.mark.one_process("own")

API = "/api/v1/autorecovery"


def test_pages_that_tools_ask_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with bookie_nodes(tmp_path, 1) as cluster:
            options = RecoveryOptions(node_id="node", check_all_s=0)
            node = await AutoRecoveryNode.start(cluster.store, cluster.tree, cluster.clock, options)
            http = await BookieHttp.start(AutoRecoveryPages(node, takes_changes=True), "127.0.0.1", 0)
            call = PageCaller(http.port).call
            try:
                assert await call("/heartbeat") == (200, "OK\n")
                assert (await call(f"{API}/nothing"))[0] == 404
                assert await call(f"{API}/status") == (200, '{"enabled": true}')
                assert await call(f"{API}/status?enabled=false", "PUT") == (200, '{"enabled": false}')
                assert (await call(f"{API}/status", "PUT"))[0] == 400
                assert not await node.marks.enabled()
                marked = f"{API}/list_under_replicated_ledger"
                assert (await call(f"{marked}/"))[0] == 404
                await node.marks.mark(7, frozenset({"b:1"}))
                await node.marks.mark(9, frozenset({"b:2"}))
                assert json.loads((await call(marked))[1]) == [7, 9]
                _, said = await call(f"{marked}?missingreplica=b:1&printmissingreplica=true")
                assert json.loads(said) == {"7": ["b:1"]}
                assert json.loads((await call(f"{marked}?excludingmissingreplica=b:1"))[1]) == [9]
                # Both are gone already: a look at the list finds so.
                assert await call(f"{API}/status?enabled=true", "PUT") == (200, '{"enabled": true}')
                async with asyncio.timeout(30):
                    while (await call(marked))[0] != 404:
                        pass
                    while not node.auditor.is_elected or node.worker.repaired < 2:
                        await call("/heartbeat")
                assert await call(f"{API}/who_is_auditor") == (200, "Auditor: node\n")
                delay = f"{API}/lost_bookie_recovery_delay"
                assert (await call(delay, "PUT", b'{"delay_seconds": "7"}'))[0] == 400
                assert (await call(delay, "PUT", b'{"delay_seconds": 7}'))[0] == 200
                assert await call(delay) == (200, "lostBookieRecoveryDelay value: 7\n")
                assert (await call(f"{API}/trigger_audit", "PUT"))[0] == 200
                assert await node.marks.lost_bookie_delay_s() == 7
                shown = {
                    family.name: family.type
                    for family in text_string_to_metric_families((await call("/metrics"))[1])
                }
                for row in AUTORECOVERY.metrics:
                    # The client library names counters without their suffix.
                    assert shown[row.name.removesuffix("_total")] == row.kind.value, row.name
            finally:
                await http.stop()
                await node.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("given", "changes", "taken"),
    [
        ({}, False, True),
        ({"bookie_tls": True}, False, False),
        ({"bookie_user": "repairs"}, False, False),
        ({"bookie_tls": True, "bookie_user": "repairs"}, True, True),
    ],
    ids=["open bookies", "TLS", "a password", "allowed"],
)
def test_changes_where_bookies_demand_something(
    tmp_path: Path, given: dict[str, Any], changes: bool, taken: bool
) -> None:
    """Callers show nothing, so a stranger at the port could switch off the repair of the cluster."""
    config = AutoRecoveryConfig(
        metadata="zk://h:1/ledgers", node_id=None, bookies=LedgerSettings(**given), http_changes=changes
    )

    async def story() -> None:
        async with bookie_nodes(tmp_path, 1) as cluster:
            options = RecoveryOptions(node_id="node", check_all_s=0)
            node = await AutoRecoveryNode.start(cluster.store, cluster.tree, cluster.clock, options)
            pages = AutoRecoveryPages(node, takes_changes=config.takes_changes)
            http = await BookieHttp.start(pages, "127.0.0.1", 0)
            call = PageCaller(http.port).call
            try:
                delay = f"{API}/lost_bookie_recovery_delay"
                for path, body in (
                    (f"{API}/status?enabled=false", b""),
                    (f"{API}/status/?enabled=false", b""),
                    (delay, b'{"delay_seconds": 7}'),
                    (f"{API}/trigger_audit", b""),
                ):
                    status, said = await call(path, "PUT", body)
                    assert status == (200 if taken else 403), path
                    assert ("--http-changes" in said) is not taken
                assert await node.marks.enabled() is not taken
                assert (await node.marks.lost_bookie_delay_s() or 0) == (7 if taken else 0)
                for path in ("/heartbeat", "/metrics", f"{API}/status", delay):
                    assert (await call(path))[0] == 200
            finally:
                await http.stop()
                await node.close()

    asyncio.run(story())

"""The `/metrics` of a bookie on the network, under Apache's names where they exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from magnetar.bookie.network.node import BookieNode
from magnetar.bookie.network.traffic import Traffic
from magnetar.observability.catalogue import text_of
from magnetar.observability.metrics import Exposition, labels
from magnetar.runtime.syncer import HelperSyncer

_GOOD: Final = labels(("success", "true"))
_BAD: Final = labels(("success", "false"))


def collect(node: BookieNode, traffic: Traffic, out: Exposition) -> Iterable[None]:
    """Adds the samples of a bookie with traffic counters to a scrape."""

    def counter(name: str, value: int, labelled: str = "") -> None:
        out.counter(name, text_of(name), value, labelled)

    def gauge(name: str, value: int) -> None:
        out.gauge(name, text_of(name), value)

    server = node.server
    counter("bookkeeper_server_ADD_ENTRY_count", traffic.adds, _GOOD)
    counter("bookkeeper_server_ADD_ENTRY_count", traffic.adds_failed, _BAD)
    counter("bookkeeper_server_READ_ENTRY_count", traffic.reads, _GOOD)
    counter("bookkeeper_server_READ_ENTRY_count", traffic.reads_failed, _BAD)
    counter("bookie_WRITE_BYTES", traffic.write_bytes)
    counter("bookie_READ_BYTES", traffic.read_bytes)
    syncers = [store.syncer for store in server.entries.stores]
    syncs = sum(syncer.latency.count for syncer in syncers if isinstance(syncer, HelperSyncer))
    counter("bookie_journal_JOURNAL_SYNC_count", syncs)
    gauge("bookie_SERVER_STATUS", 0 if node.read_only else 1)
    gauge("bookie_ledger_writable_dirs", 0 if node.read_only else len(syncers))
    gauge("bookie_ledgers_count", len(server.known_ledgers()))
    counter("bookie_DELETED_LEDGER_COUNT", node.collected)
    capacity, free = server.entries.disk_bytes()
    gauge("magnetar_bookie_disk_bytes", capacity)
    gauge("magnetar_bookie_disk_free_bytes", free)
    gauge("magnetar_bookie_connections", server.connections)
    gauge("magnetar_bookie_pending_bytes", server.entries.pending_bytes)
    gauge("magnetar_bookie_ledgers_in_limbo", server.ledgers.in_limbo)
    gauge("magnetar_quarantined_ledgers", len(node.keeper.state.held))
    gauge("magnetar_metadata_doubted", 1 if node.keeper.state.doubt else 0)
    yield
